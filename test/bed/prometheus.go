package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// A Prometheus scrapes the agents, through the API server, with the labels that the chart's PodMonitor gives them. Its
// Alertmanager notifies the test. Both run on this machine, on ports of the loopback.
type Prometheus struct {
	promv1.API
	// URL is where it answers.
	URL string

	mu       sync.Mutex
	notified []Notification
}

// A Notification is an alert as Alertmanager's webhook receiver gets it
// (https://prometheus.io/docs/alerting/latest/configuration/#webhook_config).
type Notification struct {
	Status      string            `json:"status"` // firing or resolved
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Notified returns the notifications about an alert with such labels, in the order in which they came.
func (p *Prometheus) Notified(labels map[string]string) (out []Notification) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.notified {
		if includes(n.Labels, labels) {
			out = append(out, n)
		}
	}
	return out
}

func includes(all, some map[string]string) bool {
	for name, value := range some {
		if all[name] != value {
			return false
		}
	}
	return true
}

// scrapeInterval is short, since tests wait for it.
const scrapeInterval = "2s"

// StartPrometheus starts them until the context ends, with rules, Alertmanager's inhibit_rules, and addresses of further exporters. The
// programs are Debian's, which make fetches. Its files are in dir.
func (c *Cluster) StartPrometheus(ctx context.Context, dir, rules, inhibit string, exporters ...string) (p *Prometheus, err error) {
	ctx, ended := context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			ended(err)
		}
	}()
	p = new(Prometheus)
	own, err := c.serve(ctx, p)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	p.URL = "http://" + ports[0]
	jobs, err := c.scrapes(ctx, dir, own+"/agents")
	if err != nil {
		return nil, err
	}
	for i, exporter := range exporters {
		jobs = append(jobs, object{"job_name": fmt.Sprint("exporter-", i), "static_configs": []object{{"targets": []string{exporter}}}})
	}
	var inhibits object
	if err := yaml.Unmarshal([]byte(inhibit), &inhibits); err != nil {
		return nil, fmt.Errorf("inhibit_rules: %w", err)
	}
	alertmanager := object{
		"route":     object{"receiver": "test", "group_by": []string{"..."}, "group_wait": "1s", "group_interval": "1s", "repeat_interval": "1h"},
		"receivers": []object{{"name": "test", "webhook_configs": []object{{"url": own + "/notify", "send_resolved": true}}}},
	}
	maps.Copy(alertmanager, inhibits)
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600); err != nil {
		return nil, err
	}
	for file, content := range map[string]object{
		"alertmanager.yaml": alertmanager,
		"prometheus.yaml": {
			"global":         object{"scrape_interval": scrapeInterval, "scrape_timeout": scrapeInterval, "evaluation_interval": "1s"},
			"rule_files":     []string{"rules.yaml"},
			"alerting":       object{"alertmanagers": []object{{"static_configs": []object{{"targets": ports[1:]}}}}},
			"scrape_configs": jobs,
		},
	} {
		text, err := yaml.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	path, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		return nil, fmt.Errorf("%w; make tools fetches it", err)
	}
	for _, program := range [][]string{
		// It has a file in /usr/share, which here is beside the program.
		{"unshare", "--mount", "sh", "-c", `mount -t overlay -o "lowerdir=$(dirname "$0")/share:/usr/share" none /usr/share && exec "$0" "$@"`, path,
			"--config.file=alertmanager.yaml", "--storage.path=alertmanager", "--web.listen-address=" + ports[1], "--cluster.listen-address="},
		{"prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=prometheus", "--web.listen-address=" + ports[0],
			"--enable-feature=exemplar-storage"},
	} {
		if err := runUntil(ctx, dir, program, ended); err != nil {
			return nil, err
		}
	}
	client, err := api.NewClient(api.Config{Address: p.URL})
	if err != nil {
		return nil, err
	}
	p.API = promv1.NewAPI(client)
	return p, c.Nodes[0].Await(ctx, "Prometheus to scrape all agents", func() (bool, string) {
		all, err := p.Targets(ctx)
		if err != nil {
			return false, err.Error()
		}
		up, seen := 0, ""
		for _, t := range all.Active {
			if t.Health == promv1.HealthGood {
				up++
			} else {
				seen += fmt.Sprintf("%s: %s %s; ", t.ScrapeURL, t.Health, t.LastError)
			}
		}
		return up == len(c.Nodes)+len(exporters), fmt.Sprintf("%d targets are up; %s", up, seen)
	})
}

// object is a part of a configuration.
type object = map[string]any

// scrapes returns the scrape configurations that the Prometheus operator makes of the chart's PodMonitor, in its order
// (pkg/prometheus/promcfg.go, generatePodMonitorConfig), but that the API server is asked for the agents' metrics: this machine does not
// reach the nodes' pods.
func (c *Cluster) scrapes(ctx context.Context, dir, discovery string) ([]object, error) {
	text, err := c.Helm(ctx, "template", "nodeagent", Chart(), "--namespace", c.Agents.Namespace, "--set", "podMonitor.enabled=true",
		"--show-only", "templates/podmonitor.yaml")
	if err != nil {
		return nil, err
	}
	var monitor struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct {
				Port        string
				HonorLabels bool
				Relabelings []map[string]any
			} `json:"podMetricsEndpoints"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &monitor); err != nil {
		return nil, err
	}
	credentials := rest.CopyConfig(c.config)
	if err := rest.LoadTLSFiles(credentials); err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{"ca": credentials.CAData, "cert": credentials.CertData, "key": credentials.KeyData} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			return nil, err
		}
	}
	server, err := url.Parse(c.config.Host)
	if err != nil {
		return nil, err
	}
	var out []object
	for i, endpoint := range monitor.Spec.Endpoints {
		relabel := []object{
			{"action": "drop", "source_labels": []string{"__meta_kubernetes_pod_phase"}, "regex": "(Failed|Succeeded)"},
			{"action": "keep", "source_labels": []string{"__meta_kubernetes_pod_container_port_name"}, "regex": endpoint.Port},
			{"source_labels": []string{"__meta_kubernetes_namespace"}, "target_label": "namespace"},
			{"source_labels": []string{"__meta_kubernetes_pod_container_name"}, "target_label": "container"},
			{"source_labels": []string{"__meta_kubernetes_pod_name"}, "target_label": "pod"},
			{"target_label": "job", "replacement": monitor.Metadata.Namespace + "/" + monitor.Metadata.Name},
			{"target_label": "endpoint", "replacement": endpoint.Port},
		}
		for _, name := range slices.Sorted(maps.Keys(monitor.Spec.Selector.MatchLabels)) {
			relabel = append(relabel, object{"action": "keep", "source_labels": []string{podLabel(name)}, "regex": monitor.Spec.Selector.MatchLabels[name]})
		}
		for _, r := range endpoint.Relabelings {
			relabel = append(relabel, snakeCase(r))
		}
		relabel = append(relabel,
			object{"source_labels": []string{"__address__"}, "target_label": "instance"},
			object{"source_labels": []string{"__meta_kubernetes_namespace", "__meta_kubernetes_pod_name", "__meta_kubernetes_pod_container_port_number"},
				"separator": "/", "regex": "(.*)/(.*)/(.*)", "replacement": "/api/v1/namespaces/$1/pods/$2:$3/proxy/metrics", "target_label": "__metrics_path__"},
			object{"target_label": "__address__", "replacement": server.Host})
		out = append(out, object{
			"job_name": fmt.Sprintf("podMonitor/%s/%s/%d", monitor.Metadata.Namespace, monitor.Metadata.Name, i),
			"scheme":   "https", "honor_labels": endpoint.HonorLabels,
			"tls_config": object{"ca_file": "ca", "cert_file": "cert", "key_file": "key"},
			// Debian's Prometheus is built without the discovery of Kubernetes.
			"http_sd_configs": []object{{"url": discovery, "refresh_interval": scrapeInterval}},
			"relabel_configs": relabel,
		})
	}
	return out, nil
}

// discover answers as the discovery of Kubernetes does with role pod, about the agents: for each port the labels that a relabeling may use.
func (c *Cluster) discover(w http.ResponseWriter, r *http.Request) {
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	pods, err := c.API.CoreV1().Pods(c.Agents.Namespace).List(r.Context(), metav1.ListOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	out := []target{}
	for _, p := range pods.Items {
		for _, container := range p.Spec.Containers {
			for _, port := range container.Ports {
				const prefix = "__meta_kubernetes_"
				number := strconv.Itoa(int(port.ContainerPort))
				labels := map[string]string{
					prefix + "namespace": p.Namespace, prefix + "pod_name": p.Name, prefix + "pod_node_name": p.Spec.NodeName,
					prefix + "pod_phase": string(p.Status.Phase), prefix + "pod_container_name": container.Name,
					prefix + "pod_container_port_name": port.Name, prefix + "pod_container_port_number": number,
				}
				for name, value := range p.Labels {
					labels[podLabel(name)] = value
				}
				out = append(out, target{[]string{net.JoinHostPort(p.Status.PodIP, number)}, labels})
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// podLabel returns the name under which a relabeling finds a label of a pod.
func podLabel(name string) string {
	return "__meta_kubernetes_pod_label_" + regexp.MustCompile(`\W`).ReplaceAllString(name, "_")
}

// snakeCase returns a relabeling of the operator's as Prometheus has it: sourceLabels is source_labels.
func snakeCase(relabeling object) object {
	out := object{}
	for name, value := range relabeling {
		out[strings.ToLower(regexp.MustCompile(`[A-Z]`).ReplaceAllString(name, "_$0"))] = value
	}
	return out
}

// receive is the webhook receiver.
func (p *Prometheus) receive(w http.ResponseWriter, r *http.Request) {
	var m struct{ Alerts []Notification }
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notified = append(p.notified, m.Alerts...)
}

// serve starts what the two programs ask of the test, and returns its address.
func (c *Cluster) serve(ctx context.Context, p *Prometheus) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/notify", p.receive)
	mux.HandleFunc("/agents", c.discover)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: mux}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}

// freePorts returns addresses of the loopback that nobody listens on.
func freePorts(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// runUntil runs a program in a directory until the context ends, or this program does, and tells when it ends by itself. What it prints is
// in a file there.
func runUntil(ctx context.Context, dir string, program []string, ended func(error)) error {
	path, err := exec.LookPath(program[0])
	if err != nil {
		return fmt.Errorf("%w; make tools fetches it", err)
	}
	log, err := os.Create(filepath.Join(dir, program[0]+".log"))
	if err != nil {
		return err
	}
	started := make(chan error)
	go func() {
		// The kernel sends it when the thread ends that has started the program (PR_SET_PDEATHSIG).
		runtime.LockOSThread()
		defer log.Close()
		cmd := exec.CommandContext(ctx, path, program[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		started <- err
		if err == nil {
			ended(fmt.Errorf("%s has ended: %w; see %s", program[0], cmd.Wait(), log.Name()))
		}
	}()
	if err := <-started; err != nil {
		return errors.Join(fmt.Errorf("start %s", program[0]), err)
	}
	return nil
}
