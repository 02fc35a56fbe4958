package plain

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	long := strings.Repeat("word ", MostWords)
	for text, wrong := range map[string]bool{
		"":                           false,
		"The kubelet reports it.":    false,
		"The kubelet is told of it.": true,
		"The volume, of which the server is gone.": true,
		`"somebody" is quoted`:                     false,
		"A pod that Somebody deleted":              true,
		long:                                       false,
		long + "more.":                             true,
		long + ". More words.":                     false,
		long + "/a/path -x 17":                     false,
		long + "(v1.2 of it)":                      false,
		"Fix: " + long:                             false,
		long + "; and more":                        true,
	} {
		if err := Check(text); (err != nil) != wrong {
			t.Errorf("%q: %v", text, err)
		}
	}
}
