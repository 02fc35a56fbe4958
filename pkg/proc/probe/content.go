package probe

import (
	"strings"
)

// contentStore is where containerd keeps what it downloads, below its root directory: what is not
// complete in ingest/ID/data, which it has open while the download is under way, and the parts of images
// in blobs, which it has open while it reads them (plugins/content/local/store.go and writer.go in
// github.com/containerd/containerd).
const contentStore = "/io.containerd.content.v1.content/"

// content counts the files of a containerd's content store that it has open.
func (p *probe) content() {
	p.opened(func(_ int, text string) {
		switch ingest, blob := parseContent(text); {
		case ingest:
			p.seen.Ingests++
		case blob:
			p.seen.Blobs++
		}
	})
}

// parseContent reports whether a file is a download that is under way, or a part of an image.
func parseContent(file string) (ingest, blob bool) {
	_, name, ok := strings.Cut(file, contentStore)
	if !ok {
		return false, false
	}
	id, is := strings.CutPrefix(name, "ingest/")
	return is && strings.HasSuffix(id, "/data"), strings.HasPrefix(name, "blobs/")
}
