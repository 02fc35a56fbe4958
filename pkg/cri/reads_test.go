package cri

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Nothing but what is listed leaves for containerd, and what is listed reads.
func TestAsksOnlyToRead(t *testing.T) {
	socket, _ := newServer().serve(t, nil)
	r, _ := open(t, socket, long)
	c, err := r.usable()
	if err != nil {
		t.Fatal(err)
	}
	refused := func(err error) bool { return err != nil && strings.Contains(err.Error(), "only reads") }
	known := map[string]bool{}
	for _, s := range []grpc.ServiceDesc{
		runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc,
		version.Version_ServiceDesc, containers.Containers_ServiceDesc, tasks.Tasks_ServiceDesc, content.Content_ServiceDesc,
		namespaces.Namespaces_ServiceDesc,
	} {
		for _, m := range s.Methods {
			method := "/" + s.ServiceName + "/" + m.MethodName
			known[method] = true
			err := c.Invoke(t.Context(), method, new(emptypb.Empty), new(emptypb.Empty))
			if listed := slices.Contains(reads, method); refused(err) == listed {
				t.Errorf("%s: %v, listed %v", method, err, listed)
			}
		}
		for _, m := range s.Streams {
			method := "/" + s.ServiceName + "/" + m.StreamName
			known[method] = true
			_, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
			if listed := slices.Contains(reads, method); refused(err) == listed {
				t.Errorf("%s: %v, listed %v", method, err, listed)
			}
		}
	}
	if asked := r.Requests(); asked["runtime.v1.RuntimeService/Version"] != 1 ||
		asked["containerd.services.content.v1.Content/ListStatuses"] != 1 || len(asked) != len(reads) {
		t.Errorf("counted %v, want one of each", asked)
	}
	reading := regexp.MustCompile(`/(Version|Status|Info|Read|Get|List\w*|\w+Status)$`)
	for _, method := range reads {
		if !known[method] || !reading.MatchString(method) {
			t.Errorf("%s is no request that reads", method)
		}
	}
}

// The design says how many requests there are.
func TestDesignCountsTheRequests(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("a request that is not among %d that read does not leave (`pkg/cri/reads.go`)", len(reads)); !strings.Contains(string(text), want) {
		t.Errorf("docs/design.md does not say %q", want)
	}
}
