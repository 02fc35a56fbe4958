package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/controlplane"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/node"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// patience is for how long a node that is not Ready may show no change at all: on
// an emulated processor that others keep busy, systemd alone takes minutes.
const patience = 10 * time.Minute

// waitNodes waits until every node is Ready and kube-apiserver reaches its kubelet,
// and until pods can be made at all.
func (h Handle) waitNodes(ctx context.Context, c state.Cluster) error {
	client, err := controlplane.AdminClient(h.Dir)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	base := fmt.Sprintf("https://127.0.0.1:%d", c.Ports.APIServer)
	start := time.Now()
	told, changed, last := start, start, ""
	for _, n := range c.Nodes {
		for {
			why := nodeReady(ctx, client, base, n.Name)
			if why == nil {
				break
			}
			if p, err := h.Dir.Processes().Find(n.Name); err != nil || !p.Alive() {
				return fmt.Errorf("%s ended; read %s and %s", n.Name, h.Dir.Processes().Log(n.Name), node.Console(h.Dir, n))
			}
			if now := n.Name + why.Error() + size(node.Console(h.Dir, n)); now != last {
				changed, last = time.Now(), now
			}
			if time.Since(told) > 30*time.Second {
				told = time.Now()
				say("    … %s: %v, %.0f s so far", n.Name, why, time.Since(start).Seconds())
			}
			if time.Since(changed) > patience {
				return fmt.Errorf("wait for %s to be Ready: nothing has changed for %v: %w; read %s", n.Name, patience, why, node.Console(h.Dir, n))
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for %s to be Ready: %w (%w); read %s", n.Name, context.Cause(ctx), why, node.Console(h.Dir, n))
			case <-time.After(100 * time.Millisecond):
			}
		}
		say("    %s is Ready after %.0f s", n.Name, time.Since(start).Seconds())
	}
	for {
		_, why := fetch(ctx, client, base+"/api/v1/namespaces/default/serviceaccounts/default")
		if why == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the default service account: %w (%w); read %s", context.Cause(ctx), why, h.Dir.Processes().Log("kube-controller-manager"))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// size is a file's, as text.
func size(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(info.Size())
}

// nodeReady returns nil when the node is Ready and answers, else the reason why not.
func nodeReady(ctx context.Context, client *http.Client, base, name string) error {
	data, err := fetch(ctx, client, base+"/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	var object struct {
		Spec struct {
			Taints []struct{ Key string }
		}
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("parse node: %w", err)
	}
	why := fmt.Errorf("kubelet has not reported yet")
	for _, condition := range object.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			why = nil
		} else if condition.Type == "Ready" {
			why = fmt.Errorf("not Ready: %s", condition.Message)
		}
	}
	if why == nil && len(object.Spec.Taints) > 0 {
		return fmt.Errorf("still tainted %s", object.Spec.Taints[0].Key)
	}
	if why != nil {
		return why
	}
	_, err = fetch(ctx, client, base+"/api/v1/nodes/"+name+"/proxy/healthz")
	return err
}

func fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("kube-apiserver answers %s", resp.Status)
	}
	return body, nil
}
