package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
)

// Encode writes a pod as JSON that people can read and compare: each element of
// a list (a container, a control group, a thread, a mount) has one line, and so
// has each other field of the pod and of its node. Fields stand in the order in
// which they are declared. It is ASCII: what others chose may hold characters that
// nobody sees or that move the text beside them. Its error is that of w.
func Encode(w io.Writer, p *Pod) error {
	compact, err := JSON(p, "")
	if err != nil {
		return err
	}
	_, err = w.Write(layOut(compact))
	return err
}

// JSON returns a value as JSON that is ASCII, with the given indentation.
func JSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return ASCII(bytes.TrimSpace(b.Bytes())), nil
}

// ASCII escapes what is not ASCII in JSON, which has that in strings only.
func ASCII(text []byte) []byte {
	if !bytes.ContainsFunc(text, beyond) {
		return text
	}
	var out []byte
	for _, r := range string(text) {
		if !beyond(r) {
			out = append(out, byte(r))
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, u)
		}
	}
	return out
}

func beyond(r rune) bool { return r >= 0x7f }

// spreadDepth is how many objects deep fields have lines of their own: those of
// the pod, of its node, and of the node's services.
const spreadDepth = 3

// layOut adds line breaks and spaces to compact JSON.
func layOut(compact []byte) []byte {
	var out bytes.Buffer
	var open []byte // the brackets around the current byte
	spread := 0     // how many of them, counted from the outermost, have a line for each member
	newline := func() {
		out.WriteByte('\n')
		for range spread {
			out.WriteByte(' ')
		}
	}
	for i := 0; i < len(compact); i++ {
		c := compact[i]
		switch c {
		case '"':
			end := stringEnd(compact, i)
			out.Write(compact[i:end])
			i = end - 1
		case '{', '[':
			out.WriteByte(c)
			if spread == len(open) && spreads(open, c, compact[i+1]) {
				spread++
				newline()
			}
			open = append(open, c)
		case '}', ']':
			open = open[:len(open)-1]
			if spread > len(open) {
				spread--
				newline()
			}
			out.WriteByte(c)
		case ',':
			out.WriteByte(c)
			if spread == len(open) {
				newline()
			} else {
				out.WriteByte(' ')
			}
		case ':':
			out.WriteString(": ")
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// spreads reports whether what the bracket c opens has a line for each member:
// a list of objects, or an object that is not in a list and not too deep. next
// is the byte behind c.
func spreads(open []byte, c, next byte) bool {
	if c == '[' {
		return next == '{'
	}
	return next != '}' && len(open) < spreadDepth && !bytes.ContainsRune(open, '[')
}

// stringEnd returns the index behind the JSON string that begins at i.
func stringEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}
