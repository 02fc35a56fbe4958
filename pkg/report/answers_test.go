package report

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ask returns the answer to a request that accepts a format and an encoding.
func ask(s http.Handler, accept, encoding string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodGet, "/metrics?name[]=x", nil), httptest.NewRecorder()
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", encoding)
	s.ServeHTTP(w, r)
	return w
}

// The metrics are gathered once a second for each form, however many ask, and in no other form.
func TestAnswersAreRenderedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := newAnswers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, n.Add(1), r.Header.Get("Accept"), r.Header.Get("Accept-Encoding"))
		}))
		for range 10 {
			for i := range 300 {
				ask(s, fmt.Sprintf("application/openmetrics-text;version=1.0.0;escaping=%d", i), "")
				ask(s, fmt.Sprintf("text/plain;version=0.0.%d", i), fmt.Sprint("gzip;q=0.", i))
			}
			time.Sleep(answerLasts)
		}
		if got := n.Load(); got > 40 {
			t.Errorf("rendered %d times in ten seconds for four forms", got)
		}
		if len(s.last) > 6 {
			t.Errorf("%d answers are kept", len(s.last))
		}
		// One that hangs makes nobody wait for long, and nobody else begins another one.
		hangs := make(chan struct{})
		s = newAnswers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n.Add(1); <-hangs }))
		go ask(s, "", "")
		synctest.Wait()
		n.Store(0)
		began := time.Now()
		if w := ask(s, "", ""); w.Code != http.StatusServiceUnavailable || time.Since(began) != renderTimeout || n.Load() != 0 {
			t.Errorf("%d after %s, and begun %d times", w.Code, time.Since(began), n.Load())
		}
		close(hangs)
	})
}

func TestAnswersHaveTheirForm(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "one"}, func() float64 { return 1 }))
	s := newAnswers(promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	for _, tc := range []struct{ accept, encoding, kind, has string }{
		{"", "", "text/plain", "one 1\n"},
		{"*/*", "gzip", "text/plain", "one 1\n"},
		{"*/*", "deflate, gzip;q=0.5", "text/plain", "one 1\n"},
		{"*/*", "gzip;q=0", "text/plain", "one 1\n"},
		{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2", "gzip", "application/openmetrics-text", "# EOF\n"},
		{protobuf + ";q=0.6,application/openmetrics-text;version=1.0.0;q=0.5", "", "application/vnd.google.protobuf", "one"},
	} {
		w := ask(s, tc.accept, tc.encoding)
		body := io.Reader(w.Body)
		zipped := strings.Contains(tc.encoding, "gzip") && tc.encoding != "gzip;q=0"
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != zipped {
			t.Errorf("%+v: zipped is %v", tc, got)
			continue
		}
		if zipped {
			var err error
			if body, err = gzip.NewReader(w.Body); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(body)
		kind := w.Header().Get("Content-Type")
		if err != nil || w.Code != http.StatusOK || !strings.HasPrefix(kind, tc.kind) || !strings.Contains(string(text), tc.has) {
			t.Errorf("%+v: %d %s %q %v", tc, w.Code, kind, text, err)
		}
	}
}
