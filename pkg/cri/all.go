package cri

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// listsPause is how often the lists of the whole node are asked for: an answer may cost containerd
// 16 MiB, as it does once a second for the kubelet.
const listsPause = 20 * time.Second

// takenOfList is how much of such a list is taken: gRPC gives up an answer that is larger before it
// reads it, and says how large it is.
const takenOfList = 64 << 10

// Lists asks containerd what the kubelet asks it once a second: for all sandboxes and all containers
// of the node. What is in them is not looked at. It takes at most twice the deadline of a request.
func (r *Runtime) Lists(ctx context.Context) []evidence.List {
	r.listing.Lock()
	defer r.listing.Unlock()
	c, err := r.current()
	if err != nil {
		return nil
	}
	now := r.now()
	if len(r.lists) > 0 && now.Sub(r.lists[0].Asked) > 3*listsPause {
		r.lists = nil // nobody has asked for a while: whether it has answered since is not known
	}
	if len(r.lists) > 0 && now.Sub(r.lists[0].Asked) < listsPause || !hasTime(ctx, 2*r.read) {
		return r.lists
	}
	before := r.lists
	if before == nil {
		before = []evidence.List{{Of: evidence.Sandboxes}, {Of: evidence.AllContainers}}
	}
	r.lists = make([]evidence.List, len(before))
	for i := range before {
		r.lists[i] = r.askForAll(ctx, c, before[i])
	}
	return r.lists
}

// askForAll asks for one of the lists. before is what became of it the last time.
func (r *Runtime) askForAll(ctx context.Context, c *connection, before evidence.List) evidence.List {
	l := evidence.List{Of: before.Of, Asked: r.now()}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	var err error
	if l.Of == evidence.Sandboxes {
		_, err = c.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}, grpc.MaxCallRecvMsgSize(takenOfList))
	} else {
		_, err = c.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{}, grpc.MaxCallRecvMsgSize(takenOfList))
	}
	if err == nil {
		return l
	}
	if l.Bytes = tooLarge(err); l.Bytes == 0 && silent(native(err)) {
		l.UnansweredSince, l.Attempts = before.UnansweredSince, before.Attempts+1
		if l.UnansweredSince.IsZero() {
			l.UnansweredSince = l.Asked
		}
	}
	return l
}

// larger is what gRPC says of a message that one of the sides does not send, or not take
// (rpc_util.go and server.go of google.golang.org/grpc).
var larger = regexp.MustCompile(`(?:trying to send|received) message larger than max \((\d+) vs\. \d+\)`)

// tooLarge returns the size of the message that an error is about; 0 for another error.
func tooLarge(err error) int64 {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted {
		return 0
	}
	m := larger.FindStringSubmatch(s.Message())
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
