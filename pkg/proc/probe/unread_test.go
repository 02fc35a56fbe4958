package probe

import (
	"slices"
	"strings"
	"testing"
)

func TestBeginsRequest(t *testing.T) {
	frame := func(kind byte, length int) []byte {
		return append([]byte{byte(length >> 16), byte(length >> 8), byte(length), kind}, make([]byte, 5+length)...)
	}
	const data, headers, reset, settings, ping, window = 0, 1, 3, 4, 6, 8
	for name, test := range map[string]struct {
		sent []byte
		want bool
	}{
		"nothing":                            {nil, false},
		"what a client does after an answer": {slices.Concat(frame(window, 4), frame(window, 4), frame(ping, 8), frame(ping, 8), frame(settings, 6)), false},
		"the smallest request":               {slices.Concat(frame(headers, 7), frame(data, 10)), true},
		"one after a ping":                   {slices.Concat(frame(ping, 8), frame(headers, 7), frame(data, 10)), true},
		"one that is given up":               {frame(reset, 4), false},
		"one of which the begin is read":     {frame(data, 70), false},
		"a header that is cut":               {frame(headers, 7)[:8], false},
		"a frame that is cut":                {frame(data, 70)[:40], false},
		"a new connection":                   {slices.Concat([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settings, 0), frame(headers, 70)), false},
		"something else":                     {[]byte(strings.Repeat("x", 100)), false},
		"zeros":                              {make([]byte, 100), false},
		"a frame larger than can be":         {append([]byte{255, 255, 255, 0}, make([]byte, 50)...), false},
	} {
		if got := beginsRequest(test.sent); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
