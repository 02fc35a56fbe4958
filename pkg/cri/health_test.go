package cri

import (
	"context"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/version/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestOpenDoesNotConnect(t *testing.T) {
	for _, socket := range []string{"", "containerd.sock", "tcp://127.0.0.1:1"} {
		if _, err := Open(socket); err == nil {
			t.Errorf("Open(%q) gives no error", socket)
		}
	}
	r, err := Open("unix:///nowhere/containerd.sock")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := r.Health(context.Background()); got.Error == "" || got.Refused || got.Attempts > 0 {
		t.Errorf("after Close: %+v", got)
	}
}

// well is a containerd that answers over a connection that was made then.
func well(connected time.Time) evidence.ContainerdService {
	return evidence.ContainerdService{Version: "v2.4.2", ConnectedSince: connected.Local()}
}

func TestHealthAnswered(t *testing.T) {
	socket, _ := newServer().serve(t, nil)
	r, clock := open(t, socket, long)
	for range 2 {
		if diff := cmp.Diff(well(noon), r.Health(context.Background())); diff != "" {
			t.Error(diff)
		}
		clock.move(time.Minute)
	}
}

func TestHealthUnanswered(t *testing.T) {
	s := newServer()
	socket, _ := s.serve(t, nil)
	r, clock := open(t, socket, asked)
	s.set(func() { s.hangs["version"] = true })

	for _, step := range []struct {
		after    time.Duration
		asked    int
		attempts int
	}{
		{0, 1, 1},
		{healthRetry - 1, 1, 1}, // too soon
		{1, 2, 2},
		{healthRetry, 2, 2}, // now only at the longer pause
		{healthPause - healthRetry, 3, 3},
	} {
		clock.move(step.after)
		got := r.Health(context.Background())
		if n := s.count("version"); n != step.asked || got.Attempts != step.attempts {
			t.Errorf("at %s: asked %d times, want %d; %+v", clock.now(), n, step.asked, got)
		}
		if !got.UnansweredSince.Equal(noon) || got.Refused || !strings.Contains(got.Error, socket) {
			t.Errorf("at %s: %+v", clock.now(), got)
		}
	}

	s.set(func() { s.hangs["version"] = false })
	r.health = long
	clock.move(healthPause)
	if diff := cmp.Diff(well(noon), r.Health(context.Background())); diff != "" {
		t.Errorf("an answer does not end the silence: %s", diff)
	}
}

// A containerd that is stopped has its connections accepted by the kernel, and
// nobody reads them.
func TestHealthOfOneThatOnlyListens(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	r, clock := open(t, socket, short)
	for i := range 3 {
		got := r.Health(context.Background())
		if got.Attempts != i+1 || !got.UnansweredSince.Equal(noon) || got.Refused {
			t.Errorf("question %d: %+v", i+1, got)
		}
		clock.move(healthPause)
	}
}

func TestHealthOfAStuckDatabase(t *testing.T) {
	s := newServer()
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, asked)
	s.set(func() { s.hangs["record"] = true })
	got := r.Health(context.Background())
	if got.Attempts != 1 || !strings.Contains(got.Error, "metadata database") {
		t.Errorf("%+v", got)
	}
}

func TestHealthRefused(t *testing.T) {
	s := newServer()
	socket, stop := s.serve(t, nil)
	r, clock := open(t, socket, long)
	if got := r.Health(context.Background()); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	stop()
	for range 3 { // no back-off of gRPC's hides a later state
		if got := r.Health(context.Background()); !got.Refused || got.Attempts != 0 || !strings.Contains(got.Error, socket) ||
			!got.RefusedSince.Equal(noon) || !got.Asked.Equal(clock.now()) {
			t.Errorf("%+v", got)
		}
		clock.move(time.Second)
	}
	s.serveAt(t, socket, nil)
	r.now = func() time.Time { return noon.Add(time.Minute) }
	if diff := cmp.Diff(well(noon.Add(time.Minute)), r.Health(context.Background())); diff != "" {
		t.Errorf("it listens again: %s", diff)
	}
}

func TestHealthRefusedBeforeAnyAnswer(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s.sock")
	r, _ := open(t, socket, long)
	if got := r.Health(context.Background()); got.Refused || got.Attempts != 0 ||
		!strings.HasPrefix(got.Error, evidence.NotFound) || !strings.Contains(got.Error, "there is no "+socket) || r.Blind() == nil {
		t.Errorf("no socket: %+v", got) // as likely a path that is not mounted as a containerd that is down
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if got := r.Health(context.Background()); !got.Refused || r.Blind() != nil {
		t.Errorf("a socket without a listener: %+v", got)
	}
}

// Of several sockets the first one that is there is asked, until one has answered. It is that one then, whatever becomes of it.
func TestSocketIsFound(t *testing.T) {
	dir := shortDir(t)
	first, second := filepath.Join(dir, "1.sock"), filepath.Join(dir, "2.sock")
	r, _ := open(t, filepath.Join(dir, "proc", "1", "root", "0.sock"), long)
	r.sockets = append(r.sockets, first, second)
	if got := r.Health(context.Background()); r.Blind() == nil ||
		!strings.Contains(got.Error, "/0.sock, "+first+", "+second) || strings.Contains(got.Error, "root") {
		t.Fatalf("none: %+v", got)
	}
	s := newServer()
	stop := s.serveAt(t, second, nil)
	if got := r.Health(context.Background()); got.Error != "" || r.Blind() != nil {
		t.Fatalf("the second: %+v", got)
	}
	other := newServer()
	other.serveAt(t, first, nil)
	stop()
	if got := r.Health(context.Background()); !got.Refused || !strings.Contains(got.Error, second) || r.Blind() != nil {
		t.Errorf("the second has ended: %+v", got)
	}
}

func TestHealthOfOthers(t *testing.T) {
	s := newServer()
	crio, _ := s.serve(t, func(g *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(g, criServer{server: s}) })
	other, _ := s.serve(t, func(*grpc.Server) {})
	docker := filepath.Join(shortDir(t), "s.sock")
	l, err := net.Listen("unix", docker)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			_ = c.Close()
		}
	}()
	broken := newServer()
	broken.fails["version"] = status.Error(codes.Internal, "no space left on device")
	internal, _ := broken.serve(t, nil)

	for _, tt := range []struct{ socket, want string }{
		{crio, "belongs to the runtime cri-o, not to containerd"},
		{other, "belongs to another service, not to containerd"},
		{docker, "is not the socket of a running containerd"},
		{internal, "no space left on device"},
	} {
		r, _ := open(t, tt.socket, long)
		got := r.Health(context.Background())
		if got.Refused || got.Attempts != 0 || !strings.Contains(got.Error, tt.want) || !strings.Contains(got.Error, tt.socket) {
			t.Errorf("want %q: %+v", tt.want, got)
		}
		p := &evidence.Pod{RuntimeUID: "uid", Node: evidence.Node{Containerd: got}}
		r.ReadPod(context.Background(), p)
		for _, source := range []evidence.Source{evidence.Containerd, evidence.Containers, evidence.Shims} {
			if p.Missing[source] == "" {
				t.Errorf("%s: %s is not missing", tt.want, source)
			}
		}
	}
}

// A question that was cut short by its caller says nothing about containerd.
func TestHealthCalledOff(t *testing.T) {
	s := newServer()
	socket, _ := s.serve(t, nil)
	r, _ := open(t, socket, long)
	s.set(func() { s.hangs["version"] = true })

	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if got := r.Health(soon); got.Error == "" || got.Attempts != 0 || s.count("version") != 0 {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for s.count("version") == 0 {
			runtime.Gosched()
		}
		cancel()
	}()
	if got := r.Health(ctx); got.Error == "" || got.Attempts != 0 {
		t.Errorf("%+v", got)
	}
	s.set(func() { s.hangs["version"] = false })
	if got := r.Health(context.Background()); got.Error != "" {
		t.Errorf("%+v", got)
	}
}

func TestNothingLeaks(t *testing.T) {
	s := newServer()
	socket, _ := s.serve(t, nil)
	s.set(func() {
		s.hangs["task"] = true
		podOf(s, "uid", 4)
	})
	before := runtime.NumGoroutine()
	r, clock := open(t, socket, 20*time.Millisecond)
	read := func() {
		p := &evidence.Pod{RuntimeUID: "uid"}
		r.ReadPod(context.Background(), p)
		clock.move(shimPause)
	}
	r.task, r.read, r.health = 20*time.Millisecond, long, long
	read()
	connected := runtime.NumGoroutine()
	// Those for which the time is over before they have been sent hang nowhere.
	for end := time.Now().Add(time.Minute); s.count("task") < 50; read() {
		if time.Now().After(end) {
			t.Fatalf("only %d questions hung", s.count("task"))
		}
	}
	settle(t, connected, "after questions to hung shims")

	s.set(func() { s.hangs["version"] = true })
	r.health = 5 * time.Millisecond
	for range 50 {
		r.Health(context.Background())
		clock.move(healthPause)
	}
	settle(t, connected, "after questions to a hung containerd")
	_ = r.Close()
	settle(t, before, "after Close")

	socket = filepath.Join(shortDir(t), "s.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	before = runtime.NumGoroutine()
	r, clock = open(t, socket, 5*time.Millisecond)
	for range 50 {
		r.Health(context.Background())
		clock.move(healthPause)
	}
	_ = r.Close()
	settle(t, before, "after connections that were never accepted")
}

// settle waits until no more goroutines than those are left.
func settle(t *testing.T, most int, when string) {
	t.Helper()
	for end := time.Now().Add(long); runtime.NumGoroutine() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%s %d goroutines are left, there were %d:\n%s", when, runtime.NumGoroutine(), most, buf[:runtime.Stack(buf, true)])
		}
	}
}

// Two silences, an hour apart, with nobody asking in between.
func TestSilencesAreNotGlued(t *testing.T) {
	s := newServer()
	socket, _ := s.serve(t, nil)
	r, clock := open(t, socket, short)
	s.set(func() { s.hangs["version"] = true })
	r.Health(context.Background())
	clock.move(healthRetry)
	r.Health(context.Background())
	clock.move(time.Hour)
	got := r.Health(context.Background())
	if got.Attempts != 1 || clock.now().Sub(got.UnansweredSince) > time.Minute {
		t.Errorf("one question of a new silence: %d attempts, for %s", got.Attempts, clock.now().Sub(got.UnansweredSince))
	}
}

// Beside the kubelet's containerd docker's listens, which has no CRI plugin, and the name of a socket is left on which nobody does any more.
func TestOtherSocketsArePassedOver(t *testing.T) {
	dir := shortDir(t)
	stale, docker, kubelets := filepath.Join(dir, "1.sock"), filepath.Join(dir, "2.sock"), filepath.Join(dir, "3.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	s := newServer()
	s.serveAt(t, docker, func(g *grpc.Server) {
		version.RegisterVersionServer(g, versionServer{server: s})
		containers.RegisterContainersServer(g, containersServer{server: s})
	})
	r, clock := open(t, stale, long)
	r.sockets = append(r.sockets, docker, kubelets)
	if got := r.Health(context.Background()); got.Refused || !strings.Contains(got.Error, "CRI plugin of containerd at "+docker+" is off") {
		t.Fatalf("only docker's: %+v", got)
	}
	clock.move(time.Minute)
	if got := r.Health(context.Background()); !got.Refused || !strings.Contains(got.Error, stale) {
		t.Errorf("the kubelet's is down: %+v", got)
	}
	clock.move(time.Minute)
	newServer().serveAt(t, kubelets, nil)
	if got := r.Health(context.Background()); got.Error != "" || r.at() != kubelets {
		t.Errorf("asks %s: %+v", r.at(), got)
	}
}
