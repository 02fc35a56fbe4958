package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/hostile"
)

// With nobody at the other end of the pipe the log loses lines, and holds nobody
// up. What it lost is counted and told when somebody reads again.
func TestLogNeverWaits(t *testing.T) {
	r, w := io.Pipe() // without a buffer
	out := newLossyWriter(w)
	log := slog.New(slog.NewTextHandler(out, nil))
	const lines = 3 * maxLines
	for range lines {
		log.Info("verdict", "pod", strings.Repeat("x", 100))
	}
	dropped := out.dropped.Load()
	if dropped < lines-maxLines-1 || dropped >= lines {
		t.Errorf("%d of %d lines dropped", dropped, lines)
	}
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(r) // ends with the pipe
		read <- string(b)
	}()
	out.close()
	<-out.done // the moment that close gives is too short on a busy machine
	_ = w.Close()
	text := <-read
	if !strings.Contains(text, "log lines were dropped because standard error was not read in time") {
		t.Errorf("the loss is not told:\n%.500s", text)
	}
	if got := uint64(strings.Count(text, "msg=verdict")); got != lines-dropped {
		t.Errorf("%d lines written, want %d", got, lines-dropped)
	}
}

func TestLogCutsLongLines(t *testing.T) {
	var b bytes.Buffer
	out := newLossyWriter(&b)
	if n, err := out.Write([]byte(strings.Repeat("ö", maxLine) + "\n")); n != 2*maxLine+1 || err != nil {
		t.Errorf("Write returned %d, %v", n, err)
	}
	out.close()
	<-out.done
	if text := b.String(); len(text) > maxLine || !strings.HasSuffix(text, "ö…\n") {
		t.Errorf("%d bytes, ending in %q", len(text), text[max(0, len(text)-10):])
	}
}

// Why the kubelet's health is not known is told once, and nothing of one that is known.
func TestLogHealth(t *testing.T) {
	for want, err := range map[string]error{"": nil, "give the service account": errors.New("give the service account get on nodes/healthz")} {
		var b bytes.Buffer
		logHealth(t.Context(), func(context.Context) (string, error) { return "ok", err }, slog.New(slog.NewTextHandler(&b, nil)))
		if text := b.String(); (text == "") != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%v is logged as %q", err, text)
		}
	}
}

// What is logged while the program ends is lost, and does no harm.
func TestLogAfterClose(t *testing.T) {
	out := newLossyWriter(io.Discard)
	out.close()
	for range 2 * maxLines {
		if _, err := out.Write([]byte("late\n")); err != nil {
			t.Fatal(err)
		}
	}
}

// The line about the loss is of the log's own format.
func TestLogTellsLossInItsFormat(t *testing.T) {
	for like, want := range map[string]string{
		`{"level":"INFO"}`: `{"level":"WARN","msg":"log lines were dropped because standard error was not read in time","dropped":7}`,
		"time=x":           `level=WARN msg="log lines were dropped because standard error was not read in time" dropped=7`,
	} {
		if got := strings.TrimSpace(fmt.Sprintf(lossLine([]byte(like)), 7)); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// Whatever text is logged, outside of quotation marks a line is ours: with any type, in
// both formats, and also when it is cut.
func TestLogIsOurs(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for what, text := range hostile.Texts() {
			if name.MatchString(text) {
				continue // a path
			}
			var b bytes.Buffer
			out := newLossyWriter(&b)
			log, err := newLogger(out, format, slog.LevelInfo)
			if err != nil {
				t.Fatal(err)
			}
			log = log.With("pod", text)
			log.Info(text) // as client-go may
			log.Info("x", "text", text, "error", errors.New(text), "list", []string{text}, "bytes", []byte(text), "of", struct{ A, B string }{text, text})
			log.WithGroup("g").Info("x", slog.Group("in", "text", text))
			log.Info("x", "long", strings.Repeat(text+" ", maxLine/len(text)))
			out.close()
			<-out.done
			lines := strings.SplitAfter(b.String(), "\n")
			if lines = lines[:len(lines)-1]; len(lines) != 4 {
				t.Fatalf("%s, %s: %d lines:\n%s", format, what, len(lines), b.String())
			}
			for _, line := range lines {
				if err := hostile.CheckLine(line); err != nil {
					t.Errorf("%s, %s: %.400v", format, what, err)
				}
			}
		}
	}
}
