package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestClock(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	now := begin
	c := clock{now: func() time.Time { return now }, elapsed: func(time.Time) time.Duration { return now.Sub(begin) }}
	for _, tt := range []struct {
		asked, got, date int // milliseconds
		least, most      time.Duration
	}{
		{0, 100, 0, -100 * time.Millisecond, time.Second},
		{900, 950, 1000, 50 * time.Millisecond, time.Second},                              // narrower
		{5000, 9000, 6000, 50 * time.Millisecond, time.Second},                            // slow, and tells nothing new
		{10_000, 10_100, 10_000, 50 * time.Millisecond, time.Second},                      // the same
		{20_000, 20_100, 50_000, 29_900 * time.Millisecond, 31 * time.Second},             // a clock was set
		{20_500, 20_000, 60_000, 29_900 * time.Millisecond, 31 * time.Second},             // set while it was asked
		{700_000, 700_100, 731_000, 30_900 * time.Millisecond, 32_000 * time.Millisecond}, // too long ago
	} {
		now = at(tt.got)
		c.answered(at(tt.asked), at(tt.got), at(tt.date))
		if c.least != tt.least || c.most != tt.most {
			t.Errorf("%+v: %s to %s", tt, c.least, c.most)
		}
	}
}

// This machine's clock is set while nobody is asked.
func TestClockIsSet(t *testing.T) {
	wall, elapsed := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), time.Hour
	c := &Client{clock: &clock{now: func() time.Time { return wall }, elapsed: func(time.Time) time.Duration { return elapsed }}}
	c.clock.answered(wall, wall, wall)
	for _, step := range []time.Duration{10 * time.Minute, -25 * time.Minute, 0} {
		before, _, _ := c.Skew()
		wall, elapsed = wall.Add(step+time.Second), elapsed+time.Second
		if least, most, ok := c.Skew(); !ok || least != before-step || most-least != time.Second {
			t.Errorf("set by %s: %s to %s, before that from %s", step, least, most, before)
		}
	}
	// The next answer tells the same.
	c.clock.answered(wall, wall, wall.Add(15*time.Minute))
	if least, most, _ := c.Skew(); least != 15*time.Minute || most-least != time.Second {
		t.Errorf("%s to %s", least, most)
	}
}

// Each answer counts, one that refuses too.
func TestSkew(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := c.Skew(); ok {
		t.Error("measured without an answer")
	}
	_, _ = c.Pod(t.Context(), "n", "p")
	if least, most, ok := c.Skew(); !ok || least > time.Hour || most < time.Hour || most-least > time.Minute {
		t.Errorf("%s to %s, %v", least, most, ok)
	}
}
