package bed

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// The images that the incidents' pods run. Each node has BusyboxImage; the others are made when a
// pod needs them: VictimImage from test/victim, QuitImage the same with another stop signal,
// ProgramsImage with the shells and small inits that real containers start with, and Python,
// LanguagesImage with Node.js and Java too.
const (
	BusyboxImage   = "docker.io/library/busybox:test"
	VictimImage    = "docker.io/library/victim:test"
	QuitImage      = "docker.io/library/victim-quit:test"
	ProgramsImage  = "docker.io/library/programs:test"
	LanguagesImage = "docker.io/library/languages:test"
)

// images has how each image is made, as arguments of the cluster program. An emulated node takes a minute
// and a half for LanguagesImage, so what nobody needs is left out.
func images() map[string][]string {
	const programs, jvm = "bash,dash,busybox-static,python3-minimal,tini,dumb-init", "/usr/lib/jvm/*/lib/"
	victim := filepath.Join(Root(), "bin", "victim") + ":/victim"
	debian := func(packages string, leaveOut ...string) []string {
		return []string{"--base-packages", packages, "--leave-out", strings.Join(append(leaveOut,
			"/usr/share/perl", "/usr/lib/*/perl", "/usr/lib/*/gconv", "/var/lib/dpkg/info", "/var/cache/debconf"), ",")}
	}
	return map[string][]string{
		VictimImage:    {victim},
		QuitImage:      {victim, "--stop-signal", "SIGQUIT"},
		ProgramsImage:  debian(programs),
		LanguagesImage: debian(programs+",nodejs,openjdk-17-jre-headless", jvm+"ct.sym", jvm+"server/classes_nocoops.jsa"),
	}
}

// Images makes the images that the scenarios' pods need, and puts each on the nodes that need it.
func Images(ctx context.Context, c *Cluster, scenarios []Scenario) error {
	all := images()
	needed := map[string][]*Node{}
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
	for _, name := range slices.Sorted(maps.Keys(needed)) {
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
