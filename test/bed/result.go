package bed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A Result is what became of a scenario, or of a check, on a node. The tests
// keep a file of them, which the next run is ordered by and make bench reads.
type Result struct {
	Name string `json:"name"`
	Tier string `json:"tier"`
	// Commit is the commit that ran, with -dirty behind it when it was not all.
	Commit  string `json:"commit"`
	Node    string `json:"node"`
	On      string `json:"on,omitempty"`   // the node's software
	Want    string `json:"want,omitempty"` // the true cause
	Verdict string `json:"verdict"`
	// From the deletion and from the deadline to the Event; 0 when there is none.
	Deletion time.Duration `json:"deletion,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"`
	Grace    int64         `json:"grace,omitempty"` // seconds
	// Warning is the reason of the kubelet's own first warning about the pod, from the deletion until the fault was healed, and
	// Warned how long after the deletion that came, in whole seconds.
	Warning string        `json:"warning,omitempty"`
	Warned  time.Duration `json:"warned,omitempty"`
	// Began is when its turn came, from the begin of the run. Took is how long each of Steps took,
	// and Whole all of it.
	Began time.Duration            `json:"began"`
	Took  map[string]time.Duration `json:"took,omitempty"`
	Whole time.Duration            `json:"whole"`
	Wrong []string                 `json:"wrong,omitempty"`
	// Again is how often the incident was begun anew, because its pod went
	// without the fault.
	Again int `json:"again,omitempty"`
	// Missed is what the first of two tries has failed with.
	Missed string `json:"missed,omitempty"`
	// Failures are what the test had to say, the first one first.
	Failures []string `json:"failures,omitempty"`
}

// Results are of one or several runs.
type Results []Result

func resultsFile(dir string) string { return filepath.Join(dir, "results.json") }

// ReadResults reads what Write has written; that there is none is no error.
func ReadResults(dir string) (Results, error) {
	data, err := os.ReadFile(resultsFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out Results
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it", resultsFile(dir), err)
	}
	return out, nil
}

// Of returns the result of a scenario on some software.
func (r Results) Of(name, on string) (Result, bool) {
	i := slices.IndexFunc(r, func(e Result) bool { return e.Name == name && e.On == on })
	if i < 0 {
		return Result{}, false
	}
	return r[i], true
}

// With returns these results in place of older ones, and the older ones of what is
// not among these.
func (r Results) With(older Results) Results {
	all := slices.Clone(r)
	for _, e := range older {
		if _, again := r.Of(e.Name, e.On); !again {
			all = append(all, e)
		}
	}
	return all
}

// Green returns those that a commit has not failed.
func (r Results) Green(commit string) Results {
	return slices.DeleteFunc(slices.Clone(r), func(e Result) bool { return e.Commit != commit || len(e.Failures) > 0 })
}

// Write keeps the results in a folder: of a run that is cut off, those so far.
func (r Results) Write(dir string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	part := resultsFile(dir) + ".part"
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, resultsFile(dir))
}
