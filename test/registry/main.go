// Registry is a registry of images on a node, over plain HTTP (OCI distribution specification,
// pull only), which sends an image's layer slowly, or nothing of it.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// directory has a file for each image, which says how its layer is sent: stall, or slow. The image
// is there as long as the file is.
const directory = "/run/scenario-registry"

// sendsFor is for how long a slow layer is sent.
const sendsFor = 100 * time.Second

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "registry ADDRESS PROGRAM   serves images that hold the program")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves images that hold a program, each of its own content.
func serve(address, path string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, r *http.Request) { serveImage(w, r, filepath.Base(path), program) })
	s := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if err := s.ListenAndServe(); err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	return nil
}

func serveImage(w http.ResponseWriter, r *http.Request, called string, program []byte) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
	if len(parts) != 3 {
		w.WriteHeader(http.StatusOK) // which version of the API it is
		return
	}
	name, kind, wanted := filepath.Base(parts[0]), parts[1], parts[2]
	if _, err := os.Stat(filepath.Join(directory, name)); err != nil {
		http.NotFound(w, r)
		return
	}
	layer, err := layerOf(name, called, program)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	config, manifest, err := describe(layer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	switch {
	case kind == "manifests":
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		w.Header().Set("Docker-Content-Digest", digest(manifest))
		send(w, r, name, manifest, false)
	case wanted == digest(config):
		send(w, r, name, config, false)
	case wanted == digest(layer):
		send(w, r, name, layer, true)
	default:
		http.NotFound(w, r)
	}
}

// layerOf returns an image's layer: the program, and the image's name, without which two images
// would share it.
func layerOf(name, called string, program []byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		text []byte
	}{{called, program}, {"name", []byte(name)}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.text))}); err != nil {
			return nil, fmt.Errorf("write a layer: %w", err)
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, fmt.Errorf("write a layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write a layer: %w", err)
	}
	return out.Bytes(), nil
}

// describe returns the configuration and the manifest of an image of one layer.
func describe(layer []byte) (config, manifest []byte, err error) {
	type object = map[string]any
	config, err = json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": object{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("write a configuration: %w", err)
	}
	blob := func(kind string, b []byte) object {
		return object{"mediaType": "application/vnd.oci.image." + kind, "digest": digest(b), "size": len(b)}
	}
	manifest, err = json.Marshal(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": blob("config.v1+json", config), "layers": []object{blob("layer.v1.tar", layer)},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("write a manifest: %w", err)
	}
	return config, manifest, nil
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// send sends a blob: a layer as the image's file says, for as long as that is there.
func send(w http.ResponseWriter, r *http.Request, name string, b []byte, layer bool) {
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	if !layer {
		_, _ = w.Write(b)
		return
	}
	_ = http.NewResponseController(w).Flush()
	const pause = 500 * time.Millisecond
	part := len(b)/int(sendsFor/pause) + 1
	for {
		mode, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil || r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the connection ends
		}
		if strings.TrimSpace(string(mode)) == "slow" {
			n := min(part, len(b))
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			if b = b[n:]; len(b) == 0 {
				return
			}
		}
		time.Sleep(pause)
	}
}
