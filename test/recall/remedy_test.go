package main

import (
	"strings"
	"testing"
	"time"
)

// A remedy is chosen by the words of the Event, and is done to what the cell runs.
func TestRemedied(t *testing.T) {
	const next = "nothing now; for the next deletion, "
	for name, test := range map[string]struct {
		cell, first string
		want        string // what runs then; "" where nothing can be done
	}{
		"exec":                 {"python-none-shell", next + "start python3 with exec in the script", "sh -c exec 'python3' '/everyday/server.py' 'in-time'"},
		"exec of a script":     {"beside-sleep-shell", next + "start the program with exec in the script", "sh -c exec 'sh' '-c' 'cron; exec python3 /everyday/server.py in-time'"},
		"exec beside":          {"beside-none-slow", next + "start python3 with exec in the script", "sh -c cron; exec python3 /everyday/server.py in-time"},
		"pipeline":             {"pipeline-none-slow", next + "log to stdout only and use exec, or in bash: exec PROGRAM > >(tee FILE) 2>&1", "bash -c exec python3 /everyday/server.py in-time > >(tee /tmp/log) 2>&1"},
		"pipeline and trap":    {"pipeline-none-nohandler", next + "in bash: exec PROGRAM > >(tee FILE) 2>&1", "bash -c exec python3 /everyday/server.py in-time > >(tee /tmp/log) 2>&1"},
		"trap":                 {"init-none-slow", next + "begin the script with trap 'exit 143' TERM. Run long commands as: cmd & wait", "sh -c trap 'exit 143' TERM; until [ -e /never ]; do sleep 2 & wait; done"},
		"handler":              {"python-drain-nohandler", next + "let python3 handle SIGTERM, or run it under an init (tini)", "python3 /everyday/server.py in-time"},
		"init":                 {"sideshow-sleep-slow", next + "run sleep under an init (tini)", "tini -- sleep infinity"},
		"limit":                {"gunicorn-none-slow", next + "set gunicorn's --graceful-timeout", "gunicorn --bind=:8080 --workers=2 --timeout=100000 --graceful-timeout=2 app:app"},
		"stop signal":          {"redis-sh-nohandler", next + "set STOPSIGNAL SIGTERM", "redis-server --protected-mode no --save  --repl-diskless-sync-delay 0 --shutdown-timeout 100000"},
		"nothing in the words": {"java-none-slow", next + "check what java does on SIGTERM, or raise terminationGracePeriodSeconds", ""},
		"not to this":          {"java-none-slow", next + "set gunicorn's --graceful-timeout", ""},
	} {
		c := find(t, test.cell)
		after, ok, why := c.remedied(test.first)
		got := ""
		if ok {
			got = strings.Join(after.program().command, " ")
		}
		if got != test.want || ok == (why != "") {
			t.Errorf("%s: %q (%s), want %q", name, got, why, test.want)
		}
		if c.remedy != nil || ok && after.name() != c.name()+"-remedied" {
			t.Errorf("%s: %s has become %s", name, c.name(), after.name())
		}
	}
}

func TestWorks(t *testing.T) {
	fast, clean := cell{shape: &shape{}, remedy: &remedy{fast: true}}, cell{shape: &shape{}, remedy: &remedy{}}
	for name, test := range map[string]struct {
		cell cell
		end  ending
		want string
	}{
		"clean":               {clean, ending{Code: 0, After: 2 * time.Second}, ""},
		"without its handler": {clean, ending{Code: 143, After: 2 * time.Second}, "its handler gives 0"},
		"only fast":           {fast, ending{Code: 143, After: time.Second}, ""},
		"killed":              {fast, ending{Killed: true, Code: 137, After: 15 * time.Second}, "killed"},
		"too late":            {clean, ending{After: 11 * time.Second}, "two thirds"},
		"odd":                 {clean, ending{Odd: "it was started 2 times"}, "started 2 times"},
	} {
		if got := works(test.cell, test.end, 0); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestFirstOf(t *testing.T) {
	const note = "Slow stop: container main: x. First: nothing now; for the next deletion, run it as sh -c '. /env; exec x'. Avoid: force delete. More: kubectl"
	if m := firstOf.FindStringSubmatch(note); m == nil || m[1] != "nothing now; for the next deletion, run it as sh -c '. /env; exec x'" {
		t.Errorf("%q", m)
	}
}
