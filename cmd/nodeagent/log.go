package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The bounds of what waits to be logged.
const (
	maxLines = 512
	maxLine  = 16 << 10 // bytes; as much as containerd keeps in one piece
)

// A lossyWriter hands lines on to a writer without ever waiting for it. Standard
// error of a container ends in containerd: while that hangs, which is what the
// agent has to tell of, nobody reads it, and when the pipe is full a write waits
// without end. Lines that find no room are dropped and counted, and the next one
// that is written says so.
type lossyWriter struct {
	lines   chan []byte
	dropped atomic.Uint64
	stop    chan struct{} // closed: write what is there, and end
	done    chan struct{}
}

func newLossyWriter(w io.Writer) *lossyWriter {
	l := &lossyWriter{lines: make(chan []byte, maxLines), stop: make(chan struct{}), done: make(chan struct{})}
	go l.run(w)
	return l
}

// Write never fails and never waits. A line that is too long is cut, which json
// does not survive.
func (l *lossyWriter) Write(line []byte) (int, error) {
	n := len(line)
	if n > maxLine {
		line = []byte(diagnose.Cut(string(line), maxLine-1, "…") + "\n")
	}
	select {
	case l.lines <- bytes.Clone(line):
	default:
		l.dropped.Add(1)
	}
	return n, nil
}

func (l *lossyWriter) run(w io.Writer) {
	defer close(l.done)
	var told uint64
	for line := l.next(); line != nil; line = l.next() {
		if dropped := l.dropped.Load(); dropped != told {
			fmt.Fprintf(w, lossLine(line), dropped-told)
			told = dropped
		}
		_, _ = w.Write(line) // nobody is left to tell
	}
}

// next returns the next line, nil when there is none and no more are waited for.
func (l *lossyWriter) next() []byte {
	select {
	case line := <-l.lines:
		return line
	default:
	}
	select {
	case line := <-l.lines:
		return line
	case <-l.stop:
	}
	select {
	case line := <-l.lines: // it came with the stop, and select takes either
		return line
	default:
		return nil
	}
}

// lossLine is the line about lost lines, in the format of another one.
func lossLine(like []byte) string {
	const words = "log lines were dropped because standard error was not read in time"
	if bytes.HasPrefix(like, []byte("{")) {
		return `{"level":"WARN","msg":"` + words + `","dropped":%d}` + "\n"
	}
	return `level=WARN msg="` + words + `" dropped=%d` + "\n"
}

// close gives what is left a moment to be written. What is written after it is
// lost.
func (l *lossyWriter) close() {
	close(l.stop)
	select {
	case <-l.done:
	case <-time.After(200 * time.Millisecond):
	}
}

func newLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: plain})), nil
	case "json":
		return slog.New(slog.NewJSONHandler(asciiWriter{w}, &slog.HandlerOptions{Level: level})), nil
	}
	return nil, fmt.Errorf("--log-format %q is neither text nor json", format)
}

// An asciiWriter makes ASCII of lines of JSON.
type asciiWriter struct{ w io.Writer }

func (a asciiWriter) Write(line []byte) (int, error) {
	_, err := a.w.Write(evidence.ASCII(line))
	return len(line), err
}

// name is a value that slog writes without quotation marks, and may: names, paths and addresses.
var name = regexp.MustCompile(`^(?:\[[0-9a-f:.]*\]:\d+|[A-Za-z0-9/][A-Za-z0-9_.:/@%+,~-]*)$`)

// plain makes ASCII of a value of the log, and puts what does not look like a name into
// quotation marks: errors and names of pods are by others, and slog leaves in place what
// renders as a blank, moves the text beside it or is a link.
func plain(_ []string, a slog.Attr) slog.Attr {
	var text string
	switch v := a.Value.Any().(type) {
	case nil, bool, int64, uint64, float64, time.Duration, time.Time, slog.Level, *slog.Source:
		return a
	case error:
		text = v.Error()
	default:
		text = fmt.Sprint(v)
	}
	text = ascii(text)
	if text == "" || name.MatchString(text) || strings.ContainsAny(text, ` ="`) { // which slog puts into quotation marks
		return slog.String(a.Key, text)
	}
	return slog.String(a.Key, strconv.Quote(text))
}

// ascii escapes what is not printable ASCII, but for the mark of a cut, which is ours.
func ascii(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r >= ' ' && r < 0x7f || r == '…' {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
