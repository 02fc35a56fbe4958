// Package tape keeps what the agent has read and heard while a pod terminated, so that all that comes after the reading
// can be run again without a node: what is carried over from reading to reading, the rules, what stands about the pod,
// and what is written on it.
//
// A tape is recorded where the agent is handed things: the readings of pkg/node before anything of an earlier one is
// carried over, the pods of the watch, and the answers of the API server. It is a sequence of lines, each a JSON object
// with its time. Only an agent that is built with the tag tape records.
//
// Files, frames and replies are not recorded: a round opens some thousand files, and each change of a reader would make
// all tapes useless. A clock that is set back is on no tape, because the clock of the tests only moves forward.
package tape

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Line is one thing that the agent was handed. One field beside the first three is set.
type Line struct {
	// Run tells one run of the agent from the next. At is by the node's clock, and Up what has gone by since the run
	// began, which nobody can set.
	Run int64         `json:"run"`
	At  time.Time     `json:"at"`
	Up  time.Duration `json:"up"`
	// UID is of the pod that it is about, "" for the node.
	UID string `json:"uid,omitempty"`

	// Node is what the pods of a round share.
	Node *evidence.Node `json:"node,omitempty"`
	// Look is a reading of a pod.
	Look *Look `json:"look,omitempty"`
	// Baseline is the reading of a pod that runs.
	Baseline *evidence.Baseline `json:"baseline,omitempty"`
	// Pod is an object as the watch has it, and Gone the last state of one that is gone.
	Pod  *corev1.Pod `json:"pod,omitempty"`
	Gone *corev1.Pod `json:"gone,omitempty"`
	// Skew is by how much the API server's clock is ahead, at least and at most.
	Skew *[2]time.Duration `json:"skew,omitempty"`
	// Failures, Events, Ready and Metadata are answers of the API server.
	Failures *Answer[[]eventsv1.Event]              `json:"failures,omitempty"`
	Events   *Answer[[]eventsv1.Event]              `json:"events,omitempty"`
	Ready    *Answer[*corev1.NodeCondition]         `json:"ready,omitempty"`
	Metadata *Answer[*metav1.PartialObjectMetadata] `json:"metadata,omitempty"`
}

// A Look is a reading of a pod: what it was begun with, and what came of it.
type Look struct {
	Seed *evidence.Pod `json:"seed"`
	Read *evidence.Pod `json:"read"`
}

// An Answer is what was asked for, or why there is none.
type Answer[T any] struct {
	Got   T      `json:"got,omitempty"`
	Error string `json:"error,omitempty"`
}

// mostBytes bounds a line.
const mostBytes = 64 << 20

// Read returns the lines of a tape.
func Read(r io.Reader) ([]Line, error) {
	plain, err := zstd.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	return parse(plain)
}

// parse returns lines that are not compressed.
func parse(r io.Reader) ([]Line, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, mostBytes)
	var out []Line
	for s.Scan() {
		var l Line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d of the tape: %w", len(out)+1, err)
		}
		out = append(out, l)
	}
	return out, s.Err()
}
