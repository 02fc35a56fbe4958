package cause

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// mostCapture is how large a capture may be, in bytes. One of a pod with ten thousand threads has five million.
const mostCapture = 64 << 20

// ExplainFor returns which conditions of a cause a pod meets, by a capture of it as `nodeagent capture` prints it, in Markdown. It returns an
// error if there is no such cause, or the text is no capture, or that of a newer version.
func ExplainFor(name string, capture io.Reader) (page string, err error) {
	for _, r := range All() {
		if strings.EqualFold(r.Cause, name) && r != diagnose.Unrecognised {
			p, err := decode(capture)
			if err != nil {
				return "", err
			}
			return table.AskedPage(r, p), nil
		}
	}
	if _, ok := Explain(name); ok {
		return "", fmt.Errorf("an agent looks for causes, and %q is none of these: it is a family of several causes, or only the plugin reports it; "+
			"explain lists the causes", name)
	}
	return "", fmt.Errorf("no cause that an agent looks for is called %q; explain lists the causes", name)
}

// decode reads a capture.
func decode(capture io.Reader) (*evidence.Pod, error) {
	limited := &io.LimitedReader{R: capture, N: mostCapture + 1}
	d := json.NewDecoder(limited)
	d.DisallowUnknownFields()
	var p evidence.Pod
	switch err := d.Decode(&p); {
	case limited.N == 0:
		return nil, fmt.Errorf("the capture has more than %d MiB: is it the output of nodeagent capture?", mostCapture>>20)
	case err != nil && strings.Contains(err.Error(), "unknown field"):
		return nil, fmt.Errorf("the capture is of another version of nodeagent, or is none: %w; use the program that made it", err)
	case err != nil:
		return nil, fmt.Errorf("this is no whole capture, which is the JSON that nodeagent capture NAMESPACE/POD prints without --diagnosis: %w", err)
	case d.More():
		return nil, fmt.Errorf("there is more in the file than one capture; give each in a file of its own")
	case p.UID == "" || p.Time.IsZero():
		return nil, fmt.Errorf("this JSON is no capture: it has no pod; nodeagent capture NAMESPACE/POD prints one")
	}
	return &p, nil
}

// HowToAsk says how to see which conditions of a cause a pod meets.
const HowToAsk = `
## Why, or why not, of a pod

` + "`explain CAUSE --for FILE`" + ` shows which of these conditions a pod meets. FILE is a capture of the pod, as the agent on its node makes it:

` + "```" + `
kubectl -n nodeagent-system get pods -o wide
kubectl -n nodeagent-system exec AGENT-POD -- /nodeagent capture NAMESPACE/POD > capture.json
` + "```" + `
`
