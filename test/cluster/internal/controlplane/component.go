// Package controlplane says how etcd and the parts of Kubernetes that are no node
// are started, and how one sees that they are ready.
package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// Component is one program of the control plane.
type Component struct {
	Name  string
	Args  []string
	Ready string // address that answers 200 when it is ready
	Stop  time.Duration
}

// Components lists the programs in the order in which they start.
func Components(d state.Dir, c state.Cluster) []Component {
	local := func(port int, path string) string { return fmt.Sprintf("https://127.0.0.1:%d%s", port, path) }
	return []Component{
		{Name: "etcd", Args: etcdArgs(d, c.Ports), Ready: local(c.Ports.Etcd, "/health"), Stop: 10 * time.Second},
		// An apiserver that is asked to end waits for its watches; it may take a minute.
		{Name: "kube-apiserver", Args: apiserverArgs(d, c.Ports), Ready: local(c.Ports.APIServer, "/readyz"), Stop: 90 * time.Second},
		{Name: "kube-controller-manager", Args: controllerManagerArgs(d, c.Ports), Ready: local(c.Ports.ControllerManager, "/healthz"), Stop: 20 * time.Second},
		{Name: "kube-scheduler", Args: schedulerArgs(d, c.Ports), Ready: local(c.Ports.Scheduler, "/healthz"), Stop: 20 * time.Second},
	}
}

// Find returns the component of that name.
func Find(d state.Dir, c state.Cluster, name string) (Component, error) {
	var names []string
	for _, part := range Components(d, c) {
		if part.Name == name {
			return part, nil
		}
		names = append(names, part.Name)
	}
	return Component{}, fmt.Errorf("no component %q; give one of %s", name, strings.Join(names, ", "))
}

// Start starts a component, unless it runs already.
func Start(d state.Dir, c state.Cluster, part Component) error {
	argv := append([]string{filepath.Join(c.BinDir, part.Name)}, part.Args...)
	_, err := d.Processes().Start(part.Name, argv, nil)
	return err
}

// WaitReady waits until the component answers that it is ready. It gives up at once
// when the process ends.
func WaitReady(ctx context.Context, d state.Dir, part Component, client *http.Client) error {
	log := d.Processes().Log(part.Name)
	var last error
	for {
		p, err := d.Processes().Find(part.Name)
		if err != nil {
			return err
		}
		if !p.Alive() {
			return fmt.Errorf("%s ended soon after its start; read %s", part.Name, log)
		}
		if last = get(ctx, client, part.Ready); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last answer: %w); read %s", part.Name, ctx.Err(), last, log)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// AdminClient speaks HTTPS as the administrator of the cluster.
func AdminClient(d state.Dir) (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(d.PKI("admin.crt"), d.PKI("admin.key"))
	if err != nil {
		return nil, fmt.Errorf("read certificate of the administrator: %w", err)
	}
	ca, err := os.ReadFile(d.PKI("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
		ForceAttemptHTTP2: true,
	}}, nil
}

func port(n int) string { return strconv.Itoa(n) }
