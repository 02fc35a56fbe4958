package cri

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestLists(t *testing.T) {
	s := newServer()
	socket, stop := s.serve(t, nil)
	r, clock := open(t, socket, long)
	of := func(what string, i int) evidence.List {
		t.Helper()
		clock.move(listsPause)
		lists := r.Lists(context.Background())
		if len(lists) != 2 || lists[0].Of != evidence.Sandboxes || lists[1].Of != evidence.AllContainers {
			t.Fatalf("%s: %+v", what, lists)
		}
		return lists[i]
	}
	if l := of("small lists", 0); l.Bytes != 0 || l.Attempts != 0 {
		t.Errorf("a small list: %+v", l)
	}

	// One that the kubelet takes, and nodeagent does not.
	s.set(func() {
		for i := range 3 {
			s.sandboxes[fmt.Sprint(i)] = &runtimeapi.PodSandbox{Id: fmt.Sprint(i), Annotations: map[string]string{"a": strings.Repeat("a", 60<<10)}}
		}
	})
	if l := of("a larger list", 0); l.Bytes <= 180<<10 || l.Bytes > 190<<10 {
		t.Errorf("a list of 180 KiB: %+v", l)
	}

	// One that containerd does not send.
	s.set(func() {
		s.fails["list"] = status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17825801 vs. 16777216)")
	})
	if l := of("a list that is too large", 1); l.Bytes != 17825801 {
		t.Errorf("a list that is too large: %+v", l)
	}
	before := s.count("list")
	clock.move(listsPause / 2)
	if r.Lists(context.Background()); s.count("list") != before {
		t.Error("asked again soon")
	}

	// What else fails says nothing of the size.
	for _, err := range []error{status.Error(codes.ResourceExhausted, "too many"), status.Error(codes.Unknown, "grpc: trying to send "+
		"message larger than max (17825801 vs. 16777216)")} {
		s.set(func() { s.fails["list"] = err })
		if l := of("another error", 1); l.Bytes != 0 || l.Attempts != 0 {
			t.Errorf("%v: %+v", err, l)
		}
	}

	// Without time for both none is asked for.
	clock.move(listsPause)
	before = s.count("list")
	limited, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	if r.Lists(limited); s.count("list") != before {
		t.Error("asked without time for an answer")
	}
	stop()
	if l := of("a containerd that is down", 0); l.Bytes != 0 || l.Attempts != 0 {
		t.Errorf("a containerd that is down: %+v", l)
	}
	_ = r.Close()
	clock.move(listsPause)
	if lists := r.Lists(context.Background()); lists != nil {
		t.Errorf("after Close: %+v", lists)
	}
}

func TestListsUnanswered(t *testing.T) {
	s := newServer()
	s.hangs["sandboxes"] = true
	socket, _ := s.serve(t, nil)
	r, clock := open(t, socket, asked)
	began := clock.now()
	for i := range 3 {
		lists := r.Lists(context.Background())
		if l := lists[0]; l.Attempts != i+1 || !l.UnansweredSince.Equal(began) || !l.Asked.Equal(clock.now()) {
			t.Errorf("attempt %d: %+v", i, l)
		}
		if lists[1].Attempts != 0 {
			t.Errorf("the other list: %+v", lists[1])
		}
		clock.move(listsPause)
	}
	clock.move(3 * listsPause)
	if l := r.Lists(context.Background())[0]; l.Attempts != 1 {
		t.Errorf("after a while in which nobody asked: %+v", l)
	}
	s.set(func() { s.hangs["sandboxes"] = false })
	r.read = long
	clock.move(listsPause)
	if l := r.Lists(context.Background())[0]; l.Attempts != 0 || !l.UnansweredSince.IsZero() {
		t.Errorf("after an answer: %+v", l)
	}
}
