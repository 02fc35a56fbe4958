package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/v2/pkg/shim"
	"google.golang.org/protobuf/proto"
)

// adapt has a containerd before 2.3 start this shim too. On standard input that gives the runtime's options, which the shim
// can do without, where a newer one gives BootstrapParams; it reads the address as JSON. See pkg/shim/compat.go of
// containerd.
func adapt(m *shim.Shim) error {
	if !slices.Contains(os.Args, "start") {
		return nil
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	params := &bootapi.BootstrapParams{}
	if proto.Unmarshal(input, params) != nil || params.GetInstanceID() != argument("-id") {
		*m = older{*m}
		if input, err = proto.Marshal(&bootapi.BootstrapParams{
			InstanceID: argument("-id"), Namespace: argument("-namespace"), ContainerdGrpcAddress: argument("-address"),
		}); err != nil {
			return err
		}
	}
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	os.Stdin = from
	if _, err := to.Write(input); err != nil { // much less than a pipe holds
		return err
	}
	return to.Close()
}

// argument returns what stands behind one of the arguments, "" for none.
func argument(name string) string {
	if i := slices.Index(os.Args, name) + 1; i > 0 && i < len(os.Args) {
		return os.Args[i]
	}
	return ""
}

// An older shim is started by a containerd before 2.3.
type older struct{ shim.Shim }

// Start starts the process that serves, tells where it listens, and ends this one.
func (s older) Start(ctx context.Context, params *bootapi.BootstrapParams) (*bootapi.BootstrapResult, error) {
	result, err := s.Shim.Start(ctx, params)
	if err != nil {
		return nil, err
	}
	told := map[string]any{"version": result.GetVersion(), "address": result.GetAddress(), "protocol": result.GetProtocol()}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		return nil, err
	}
	os.Exit(0)
	return nil, nil
}
