package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// maxImageConfig is the largest image configuration that is read, in bytes.
const maxImageConfig = 4 << 20

// stopSignal returns the signal that stops a container, in the order in which
// containerd chooses it (internal/cri/server/container_stop.go): from 2.3 on the
// container's own, the STOPSIGNAL of its image, SIGTERM. 0 without an error means that what
// is set is not a signal; containerd then fails to stop the container, too.
func (r *Runtime) stopSignal(ctx context.Context, c *connection, l listed, s *runtimeapi.ContainerStatus) (evidence.Signal, error) {
	// containerd before 2.3 does not return it; later ones do not for a
	// STOPSIGNAL that is a number.
	if sig := s.GetStopSignal(); sig != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return parseCRISignal(sig), nil
	}
	return r.imageStopSignal(ctx, c, l.image)
}

// parseCRISignal parses names such as SIGNAL_SIGRTMINPLUS3 (api.proto of the
// CRI); it returns 0 for an unknown one.
func parseCRISignal(sig runtimeapi.Signal) evidence.Signal {
	name := strings.TrimPrefix(sig.String(), "SIGNAL_SIG")
	switch name { // signal(7): the other names of some
	case "CLD":
		name = "CHLD"
	case "IOT":
		name = "ABRT"
	case "POLL":
		name = "IO"
	}
	name = strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)
	s, err := evidence.ParseSignal(name)
	if err != nil {
		return 0
	}
	return s
}

// stopSignals is a cache by the digest of the image's configuration. The same
// digest always means the same configuration.
type stopSignals struct {
	mu sync.Mutex
	m  map[string]evidence.Signal
}

func (s *stopSignals) get(image string) (evidence.Signal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sig, ok := s.m[image]
	return sig, ok
}

func (s *stopSignals) put(image string, sig evidence.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= most {
		s.m = make(map[string]evidence.Signal)
	}
	s.m[image] = sig
}

// imageStopSignal reads the image's configuration from containerd's content
// store. A deleted image is an error: the container keeps the signal that the
// image had when the container was created, and that is not known.
func (r *Runtime) imageStopSignal(ctx context.Context, c *connection, image string) (evidence.Signal, error) {
	if sig, ok := r.images.get(image); ok {
		return sig, nil
	}
	d, err := digest.Parse(image)
	if err != nil {
		return 0, fmt.Errorf("image %q: %w", image, err)
	}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	blob, err := c.containerd.ContentStore().ReaderAt(ctx, ocispec.Descriptor{Digest: d})
	if err != nil {
		return 0, fmt.Errorf("read the configuration of image %s: %w", image, err)
	}
	defer blob.Close()
	if n := blob.Size(); n > maxImageConfig {
		return 0, fmt.Errorf("the configuration of image %s has %d bytes, more than %d", image, n, maxImageConfig)
	}
	b, err := io.ReadAll(content.NewReader(blob))
	if err != nil {
		return 0, fmt.Errorf("read the configuration of image %s: %w", image, err)
	}
	sig, err := parseImageStopSignal(b)
	if err != nil {
		return 0, fmt.Errorf("image %s: %w", image, err)
	}
	r.images.put(image, sig)
	return sig, nil
}

// parseImageStopSignal returns config.StopSignal of an image's configuration
// (OCI image specification, config.md): SIGTERM when there is none, 0 when it is
// not a signal.
func parseImageStopSignal(b []byte) (evidence.Signal, error) {
	var image struct {
		Config struct {
			StopSignal string
		} `json:"config"`
	}
	if err := json.Unmarshal(b, &image); err != nil {
		return 0, fmt.Errorf("parse image configuration: %w", err)
	}
	if image.Config.StopSignal == "" {
		return evidence.SIGTERM, nil
	}
	sig, err := evidence.ParseSignal(image.Config.StopSignal)
	if err != nil {
		return 0, nil //nolint:nilerr // an answer: the image names no signal
	}
	return sig, nil
}
