package cri

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/containerd/api/types/task"
	ctxspace "github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A server is the other side of the socket: containerd's services as far as
// they are asked for, over real gRPC. What a method shall do is set by hang and
// fail; all others answer.
type server struct {
	mu         sync.Mutex
	hangs      map[string]bool // by question, or question and container
	fails      map[string]error
	network    string // why the network is not ready, "" when it is
	asked      map[string]int
	containers map[string]*runtimeapi.Container
	sandboxes  map[string]*runtimeapi.PodSandbox
	starting   map[string]string // sandboxes that are being created, and the UIDs of their pods
	signals    map[string]runtimeapi.Signal
	mounts     map[string][]*runtimeapi.Mount
	addresses  map[string]string // of sandboxes
	specs      map[string]string
	blobs      map[string]string
	ingests    []*content.Status
	elsewhere  []*content.Status // in another namespace
	tasks      map[string]*task.Process
	// stateless makes the server answer as containerd before 2.3 does when a shim returns an error, or does not answer:
	// without an error and without a state. It is called before that.
	stateless func()
}

func newServer() *server {
	return &server{
		hangs: map[string]bool{}, fails: map[string]error{}, asked: map[string]int{},
		containers: map[string]*runtimeapi.Container{}, sandboxes: map[string]*runtimeapi.PodSandbox{},
		signals: map[string]runtimeapi.Signal{}, specs: map[string]string{}, blobs: map[string]string{},
		tasks: map[string]*task.Process{},
	}
}

// serve starts the server on a socket of its own. register chooses the
// services; nil means all of containerd's.
func (s *server) serve(t *testing.T, register func(*grpc.Server)) (socket string, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s.sock")
	return socket, s.serveAt(t, socket, register)
}

func (s *server) serveAt(t *testing.T, socket string, register func(*grpc.Server)) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	if register == nil {
		version.RegisterVersionServer(g, versionServer{server: s})
		containers.RegisterContainersServer(g, containersServer{server: s})
		content.RegisterContentServer(g, contentServer{server: s})
		namespaces.RegisterNamespacesServer(g, namespacesServer{server: s})
		tasks.RegisterTasksServer(g, tasksServer{server: s})
		runtimeapi.RegisterRuntimeServiceServer(g, criServer{server: s})
	} else {
		register(g)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	stop = sync.OnceFunc(func() { g.Stop(); <-done })
	t.Cleanup(stop)
	return stop
}

func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *server) count(question string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[question]
}

// enter counts a question, and hangs or fails as told.
func (s *server) enter(ctx context.Context, question, id string) error {
	s.mu.Lock()
	s.asked[question]++
	if id != "" {
		s.asked[question+" "+id]++
	}
	hang := s.hangs[question] || s.hangs[question+" "+id]
	err := s.fails[question]
	if err == nil {
		err = s.fails[question+" "+id]
	}
	s.mu.Unlock()
	if hang {
		<-ctx.Done() // like a server, this one learns of the deadline
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

type versionServer struct {
	version.UnimplementedVersionServer
	*server
}

func (s versionServer) Version(ctx context.Context, _ *emptypb.Empty) (*version.VersionResponse, error) {
	return &version.VersionResponse{Version: "v2.4.2"}, s.enter(ctx, "version", "")
}

type containersServer struct {
	containers.UnimplementedContainersServer
	*server
}

func (s containersServer) Get(ctx context.Context, q *containers.GetContainerRequest) (*containers.GetContainerResponse, error) {
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("containerd-namespace")) == 0 {
		return nil, status.Error(codes.FailedPrecondition, "namespace is required")
	}
	if err := s.enter(ctx, "record", q.ID); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, ok := s.specs[q.ID]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "container %q: not found", q.ID)
	}
	return &containers.GetContainerResponse{Container: &containers.Container{
		ID: q.ID, Runtime: &containers.Container_Runtime{Name: "io.containerd.runc.v2"},
		Spec: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: []byte(spec)},
	}}, nil
}

// ListStream lists the sandboxes of starting whose pod's UID a filter ends with, made at noon.
func (s containersServer) ListStream(q *containers.ListContainersRequest, out containers.Containers_ListStreamServer) error {
	if err := s.enter(out.Context(), "records", ""); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, uid := range s.starting {
		if !strings.HasSuffix(q.Filters[0], fmt.Sprintf(`==%q`, uid)) {
			continue
		}
		if err := out.Send(&containers.ListContainerMessage{Container: &containers.Container{
			ID: id, Labels: map[string]string{"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "web"},
			CreatedAt: timestamppb.New(noon),
		}}); err != nil {
			return err
		}
	}
	return nil
}

type contentServer struct {
	content.UnimplementedContentServer
	*server
}

func (s contentServer) Info(ctx context.Context, q *content.InfoRequest) (*content.InfoResponse, error) {
	if err := s.enter(ctx, "image", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.blobs[q.Digest]
	if !ok {
		return nil, status.Error(codes.NotFound, "not found")
	}
	return &content.InfoResponse{Info: &content.Info{Digest: q.Digest, Size: int64(len(b))}}, nil
}

func (s contentServer) ListStatuses(ctx context.Context, _ *content.ListStatusesRequest) (*content.ListStatusesResponse, error) {
	if err := s.enter(ctx, "ingests", ""); err != nil {
		return nil, err
	}
	if space, _ := ctxspace.Namespace(ctx); space != namespace {
		return &content.ListStatusesResponse{Statuses: s.elsewhere}, nil
	}
	return &content.ListStatusesResponse{Statuses: s.ingests}, nil
}

type namespacesServer struct {
	namespaces.UnimplementedNamespacesServer
	*server
}

func (s namespacesServer) List(ctx context.Context, _ *namespaces.ListNamespacesRequest) (*namespaces.ListNamespacesResponse, error) {
	if err := s.enter(ctx, "namespaces", ""); err != nil {
		return nil, err
	}
	return &namespaces.ListNamespacesResponse{Namespaces: []*namespaces.Namespace{{Name: namespace}, {Name: "moby"}}}, nil
}

func (s contentServer) Read(q *content.ReadContentRequest, out content.Content_ReadServer) error {
	s.mu.Lock()
	b := s.blobs[q.Digest]
	s.mu.Unlock()
	return out.Send(&content.ReadContentResponse{Offset: q.Offset, Data: []byte(b)[q.Offset:]})
}

type tasksServer struct {
	tasks.UnimplementedTasksServer
	*server
}

func (s tasksServer) Get(ctx context.Context, q *tasks.GetRequest) (*tasks.GetResponse, error) {
	if err := s.enter(ctx, "task", q.ContainerID); err != nil {
		if s.stateless == nil {
			return nil, err
		}
		s.stateless()
		return &tasks.GetResponse{Process: &task.Process{ID: q.ContainerID}}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.tasks[q.ContainerID]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "no running task found")
	}
	return &tasks.GetResponse{Process: p}, nil
}

type criServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	*server
}

func (s criServer) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "cri-o"}, nil
}

func (s criServer) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: s.network == ""}
	if s.network != "" {
		network.Reason, network.Message = "NetworkPluginNotReady", s.network
	}
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
		Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}, network},
	}}, nil
}

func (s criServer) ListContainers(ctx context.Context, q *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if err := s.enter(ctx, "list", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	for _, c := range s.containers {
		if c.Labels[podUID] == q.GetFilter().GetLabelSelector()[podUID] {
			out.Containers = append(out.Containers, c)
		}
	}
	return out, nil
}

func (s criServer) ListPodSandbox(ctx context.Context, q *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	if err := s.enter(ctx, "sandboxes", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, c := range s.sandboxes {
		if c.Labels[podUID] == q.GetFilter().GetLabelSelector()[podUID] {
			out.Items = append(out.Items, c)
		}
	}
	return out, nil
}

func (s criServer) PodSandboxStatus(ctx context.Context, q *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := s.enter(ctx, "sandbox", q.PodSandboxId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: q.PodSandboxId, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.addresses[q.PodSandboxId]},
	}}, nil
}

func (s criServer) ContainerStatus(ctx context.Context, q *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	if err := s.enter(ctx, "status", q.ContainerId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: q.ContainerId, StopSignal: s.signals[q.ContainerId], Mounts: s.mounts[q.ContainerId],
	}}, nil
}

// A clock stands still until it is moved.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// noon is when the tests begin.
var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// open opens the socket with deadlines of the given length.
func open(t *testing.T, socket string, deadline time.Duration) (*Runtime, *clock) {
	t.Helper()
	r, err := Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	c := &clock{t: noon}
	r.now = c.now
	r.health, r.read, r.task = deadline, deadline, deadline
	return r, c
}

// Deadlines of the tests: short where a test waits for it to pass, asked where the server
// must have had the question until then, long where an answer is waited for.
const (
	short = 50 * time.Millisecond
	asked = 2 * time.Second
	long  = 20 * time.Second
)
