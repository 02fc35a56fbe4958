package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// tools are the programs that were put on a node.
type tools struct {
	mu  sync.Mutex
	has map[string]bool
}

// NodeTool puts one of the programs of bin on the node, in /usr/local/bin.
func NodeTool(name string) Step {
	return func(ctx context.Context, n *Node, _ *corev1.Pod) error {
		n.tools.mu.Lock()
		defer n.tools.mu.Unlock()
		if n.tools.has[name] {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(Root(), "bin", name))
		if err != nil {
			return fmt.Errorf("%w; make bin/%s builds it", err, name)
		}
		path := "/usr/local/bin/" + name
		// A program that runs cannot be written to, but replaced.
		if _, err := n.run(ctx, string(b), "exec", n.Name, fmt.Sprintf("cat >%s.new && chmod 755 %s.new && mv %s.new %s", path, path, path, path)); err != nil {
			return err
		}
		if n.tools.has == nil {
			n.tools.has = map[string]bool{}
		}
		n.tools.has[name] = true
		return nil
	}
}
