package report

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
)

const (
	// answerLasts is how long an answer is given to whoever asks.
	answerLasts = time.Second
	// renderTimeout is how long somebody waits for one.
	renderTimeout = 10 * time.Second
)

// An answer is what is served of the metrics in one format and encoding.
type answer struct {
	at     time.Time
	code   int
	header http.Header
	body   bytes.Buffer
}

// Header, WriteHeader and Write implement http.ResponseWriter for who renders it.
func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// A form is how an answer is written.
type form struct {
	format expfmt.FormatType
	gzip   bool
}

// accepts are what a request says that asks for a format.
var accepts = map[expfmt.FormatType]string{
	expfmt.TypeTextPlain:   "text/plain;version=0.0.4",
	expfmt.TypeOpenMetrics: "application/openmetrics-text;version=1.0.0",
	expfmt.TypeProtoDelim:  "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
}

// Answers are a handler's, each rendered at most once a second, and the same bytes for all connections: neither how many
// ask, nor how slowly they read, costs anything. Anybody on the pod network may ask.
type answers struct {
	render http.Handler
	turn   chan struct{} // holds one token; who has it may use last
	last   map[form]*answer
}

func newAnswers(render http.Handler) *answers {
	s := &answers{render: render, turn: make(chan struct{}, 1), last: make(map[form]*answer)}
	s.turn <- struct{}{}
	return s
}

// ServeHTTP implements http.Handler. Of the request, only the format and the encoding that it accepts are looked at.
func (s *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), renderTimeout)
	defer cancel()
	a := s.get(ctx, formOf(r.Header))
	if a == nil {
		http.Error(w, "the metrics are not gathered in time", http.StatusServiceUnavailable)
		return
	}
	for key, values := range a.header {
		w.Header()[key] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // who does not read all of it has gone
}

// formOf returns the form of the answer that is asked for.
func formOf(h http.Header) form {
	f := form{format: expfmt.NegotiateAccept(h, expfmt.DefaultOpenMetricsAcceptedFormats()...).FormatType()}
	if _, ok := accepts[f.format]; !ok {
		f.format = expfmt.TypeTextPlain
	}
	for of := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(of, " ", ""), ";")
		f.gzip = f.gzip || name == "gzip" && strings.Trim(weight, "q=0.") != "" || name == "gzip" && weight == ""
	}
	return f
}

// get returns the answer of that form, rendered now if the last one is older; nil when that takes too long.
func (s *answers) get(ctx context.Context, f form) *answer {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil
	}
	defer func() { s.turn <- struct{}{} }()
	if a := s.last[f]; a != nil && time.Since(a.at) < answerLasts {
		return a
	}
	r := &http.Request{Method: http.MethodGet, Header: http.Header{"Accept": {accepts[f.format]}, "Accept-Encoding": {"identity"}}}
	if f.gzip {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	a := &answer{code: http.StatusOK, header: make(http.Header)}
	s.render.ServeHTTP(a, r)
	a.at = time.Now()
	s.last[f] = a
	return a
}
