package cri

import (
	"context"
	"errors"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// native returns the error that containerd's client returns for a gRPC status.
func native(err error) error { return errgrpc.ToNative(err) }

// silent reports whether an error means that there was no answer in time: to us
// or, from a shim, to containerd.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errdefs.IsDeadlineExceeded(err)
}

// bound returns the text of an error, cut to 300 bytes.
func bound(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
