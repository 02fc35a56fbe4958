package bed

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// The images that the incidents' pods run. Each node has BusyboxImage; the others are made when a
// pod needs them: VictimImage from test/victim, QuitImage and TermImage the same with a stop signal,
// ProgramsImage with the shells and small inits that real containers start with, and Python, QuitShellImage the same with
// another stop signal, LanguagesImage with Node.js and Java too. RuntimesImage and ServersImage have the programs of everyday
// images and the files of test/everyday, for test/recall; the others are ServersImage with the stop signals that nginx
// and php-fpm, PostgreSQL, and haproxy are published with.
const (
	BusyboxImage   = "docker.io/library/busybox:test"
	VictimImage    = "docker.io/library/victim:test"
	QuitImage      = "docker.io/library/victim-quit:test"
	TermImage      = "docker.io/library/victim-term:test"
	ProgramsImage  = "docker.io/library/programs:test"
	QuitShellImage = "docker.io/library/programs-quit:test"
	LanguagesImage = "docker.io/library/languages:test"
	RuntimesImage  = "docker.io/library/everyday-runtimes:test"
	ServersImage   = "docker.io/library/everyday-servers:test"
	ServersQuit    = "docker.io/library/everyday-servers-quit:test"
	ServersInt     = "docker.io/library/everyday-servers-int:test"
	ServersUserOne = "docker.io/library/everyday-servers-usr1:test"
)

// images has how each image is made, as arguments of the cluster program. An emulated node takes a minute
// and a half for LanguagesImage, so what nobody needs is left out.
func images() map[string][]string {
	const programs, jvm = "bash,dash,busybox-static,python3-minimal,tini,dumb-init", "/usr/lib/jvm/*/lib/"
	victim := filepath.Join(Root(), "bin", "victim") + ":/victim"
	everyday := []string{filepath.Join(Root(), "test", "everyday", "files") + ":/everyday", filepath.Join(Root(), "bin", "wrapper") + ":/wrapper"}
	debian := func(packages string, leaveOut ...string) []string {
		return []string{"--base-packages", packages, "--leave-out", strings.Join(append(leaveOut,
			"/usr/share/perl", "/usr/lib/*/perl", "/usr/lib/*/gconv", "/var/lib/dpkg/info", "/var/cache/debconf"), ",")}
	}
	runtimes := slices.Concat(everyday, debian("openjdk-17-jre-headless,nodejs,npm,python3,gunicorn,python3-celery,supervisor,crun,tini"))
	servers := slices.Concat(everyday, debian("nginx-light,php8.2-fpm,postgresql-15,redis-server,nats-server,haproxy,rsyslog,s6,cron,procps,python3,tini"))
	return map[string][]string{
		RuntimesImage:  runtimes,
		ServersImage:   servers,
		ServersQuit:    slices.Concat(servers, []string{"--stop-signal", "SIGQUIT"}),
		ServersInt:     slices.Concat(servers, []string{"--stop-signal", "SIGINT"}),
		ServersUserOne: slices.Concat(servers, []string{"--stop-signal", "SIGUSR1"}),
		VictimImage:    {victim},
		QuitImage:      {victim, "--stop-signal", "SIGQUIT"},
		TermImage:      {victim, "--stop-signal", "SIGTERM"},
		ProgramsImage:  debian(programs),
		QuitShellImage: append(debian(programs), "--stop-signal", "SIGQUIT"),
		LanguagesImage: debian(programs+",nodejs,openjdk-17-jre-headless", jvm+"ct.sym", jvm+"server/classes_nocoops.jsa"),
	}
}

// Images makes the images that the scenarios' pods need, and puts each on the nodes that need it.
func Images(ctx context.Context, c *Cluster, scenarios []Scenario) error {
	all := images()
	needed := make(needs)
	need := func(image string, nodes []*Node) {
		for _, n := range nodes {
			if all[image] != nil && !slices.Contains(needed[image], n) {
				needed[image] = append(needed[image], n)
			}
		}
	}
	for _, s := range scenarios {
		nodes := slices.Concat(c.For(s)...)
		need(VictimImage, nodes) // tracers run it, too
		for _, container := range s.Pod.Containers {
			need(container.Image, nodes)
		}
	}
	return needed.load(ctx, c)
}

// LoadImages makes some of the images, and puts them on all nodes.
func LoadImages(ctx context.Context, c *Cluster, names ...string) error {
	needed := make(needs)
	for _, name := range names {
		needed[name] = c.Nodes
	}
	return needed.load(ctx, c)
}

// needs are the nodes that need an image.
type needs map[string][]*Node

func (needed needs) load(ctx context.Context, c *Cluster) error {
	all := images()
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if all[name] == nil {
			continue // each node has it
		}
		archive, err := c.Image(ctx, name, all[name]...)
		if err != nil {
			return err
		}
		if _, err := c.load(ctx, archive, needed[name]); err != nil {
			return err
		}
	}
	return nil
}
