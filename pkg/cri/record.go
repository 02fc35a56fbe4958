package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"sync"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// most is the number of entries in each of the caches. One has about 100 bytes, and where the
// specification has a claim mounted the place, of 256 bytes at most, and the name of the volume.
const most = 1024

// A record is what does not change in the life of a container.
type record struct {
	runtime    string
	program    string
	stopSignal evidence.Signal
	// volumes are what the node calls the pod's volumes, by where the container has them
	// mounted.
	volumes map[string]string
}

// records is a cache by container ID.
type records struct {
	mu sync.Mutex
	m  map[string]record
}

func (r *records) get(id string) (record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.m[id]
	return rec, ok
}

func (r *records) put(id string, rec record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil || len(r.m) >= most {
		r.m = make(map[string]record) // what is needed is read again
	}
	r.m[id] = rec
}

// record returns a container's runtime, program, stop signal and volumes. What cannot be
// read is empty, and is tried again in the next reading.
func (r *Runtime) record(ctx context.Context, c *connection, p *evidence.Pod, l listed) record {
	if rec, ok := r.records.get(l.id); ok {
		return rec
	}
	var rec record
	runtime, program, err := r.readRecord(ctx, c, l.id)
	if err != nil {
		// The next request would wait for the same database.
		return rec
	}
	rec.runtime, rec.program = runtime, program
	if !l.sandbox { // containerd stops a sandbox with SIGKILL
		s, err := r.status(ctx, c, l.id)
		if err != nil {
			return rec
		}
		rec.volumes = volumesOf(s, p, l.name)
		if rec.stopSignal, err = r.stopSignal(ctx, c, l, s); err != nil {
			return rec
		}
	}
	r.records.put(l.id, rec)
	return rec
}

// readRecord reads containerd's own record of the container. Of its
// specification only the base name of the first argument is kept.
func (r *Runtime) readRecord(ctx context.Context, c *connection, id string) (runtime, program string, err error) {
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	k, err := c.containerd.ContainerService().Get(ctx, id)
	if err != nil {
		return "", "", fmt.Errorf("read the record of container %s: %w", id, err)
	}
	if k.Spec != nil {
		program = parseProgram(k.Spec.GetValue())
	}
	return k.Runtime.Name, program, nil
}

// parseProgram returns the base name of the first argument in an OCI runtime
// specification (config.md, process.args), "" when there is none.
func parseProgram(spec []byte) string {
	var s struct {
		Process struct {
			Args []string `json:"args"`
		} `json:"process"`
	}
	if err := json.Unmarshal(spec, &s); err != nil || len(s.Process.Args) == 0 || s.Process.Args[0] == "" {
		return ""
	}
	name := path.Base(s.Process.Args[0])
	if len(name) > 255 { // NAME_MAX: not the name of a file
		return ""
	}
	return name
}
