package node

import "testing"

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		words []string
		want  string
	}{
		{[]string{"echo a | wc -c"}, "echo a | wc -c"},
		{[]string{"sh", "-c", "echo a; exit 3"}, "'sh' '-c' 'echo a; exit 3'"},
		{[]string{"echo", "it's", "", "$HOME"}, `'echo' 'it'\''s' '' '$HOME'`},
	} {
		if got := CommandLine(test.words); got != test.want {
			t.Errorf("CommandLine(%q) = %s, want %s", test.words, got, test.want)
		}
	}
}
