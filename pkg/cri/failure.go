package cri

import (
	"context"
	"errors"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// native turns a gRPC status into the error that containerd's client returns
// for it.
func native(err error) error { return errgrpc.ToNative(err) }

// silent reports whether an error means that no answer came in time, be it on
// our side or, for a shim, on containerd's.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errdefs.IsDeadlineExceeded(err)
}

// bound keeps the text of an error to what a verdict can hold.
func bound(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
