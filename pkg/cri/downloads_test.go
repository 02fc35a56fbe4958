package cri

import (
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Of many downloads those are kept that moved last, and a containerd that does not answer has none.
func TestDownloads(t *testing.T) {
	s := newServer()
	at := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second).UTC() }
	for n := range 2 * maxDownloads {
		s.ingests = append(s.ingests, &content.Status{StartedAt: timestamppb.New(noon), UpdatedAt: timestamppb.New(at(n)), Ref: "layer",
			Offset: int64(n), Total: 1000})
	}
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	got := r.Downloads(t.Context())
	if len(got) != maxDownloads {
		t.Fatalf("%d downloads", len(got))
	}
	const last = 2*maxDownloads - 1
	if diff := cmp.Diff(evidence.Download{Started: noon.UTC(), Updated: at(last), Offset: last, Total: 1000}, got[0]); diff != "" {
		t.Error(diff)
	}
	// What docker downloads is one of those whose files containerd has open.
	s.set(func() {
		s.elsewhere = []*content.Status{{StartedAt: timestamppb.New(noon), UpdatedAt: timestamppb.New(at(last + 1))}}
	})
	if got := r.Downloads(t.Context()); len(got) == 0 || !got[0].Updated.Equal(at(last+1)) {
		t.Error("a download in another namespace is not known")
	}
	s.set(func() { s.hangs["ingests"] = true })
	r.read = 50 * time.Millisecond
	if got := r.Downloads(t.Context()); got != nil {
		t.Errorf("%d downloads of a containerd that does not answer", len(got))
	}
}
