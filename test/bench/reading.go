package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// cpu is the unit in which the benchmarks of pkg/proc tell time on the CPU.
const cpu = "cpu-ns/op"

// reading runs the benchmarks of pkg/proc. The ratios hold two numbers of one
// run, each the least of several, because other work on the machine only ever
// adds.
func reading(ctx context.Context) ([]row, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "ReadPod|ReadBlocked", "-benchtime", "0.5s", "-count", "5", "./pkg/proc")
	cmd.Dir = file()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("benchmarks of pkg/proc: %w\n%s", err, indent(string(out)))
	}
	least, err := parseBenchmarks(string(out), cpu)
	if err != nil {
		return nil, err
	}
	allocated, err := parseBenchmarks(string(out), "allocs/op")
	if err != nil {
		return nil, err
	}
	// The first missing benchmark is told; a number without it means nothing.
	var missing string
	ns := func(name string) float64 {
		v, ok := least["Benchmark"+name]
		if !ok && missing == "" {
			missing = name
		}
		return v
	}
	var rows []row
	for _, n := range []string{"20", "200", "5000"} {
		pod, bare := ns("ReadPod/"+n+"/ReadPod"), ns("ReadPod/"+n+"/floor")
		alone, whole := ns("ReadPod/"+n+"/ReadPodAlone"), ns("ReadPod/"+n+"/floorAlone")
		told := ns("ReadPod/" + n + "/ReadPodAndDiagnose")
		r := row{what: "Gathering a healthy pod of " + n + " tasks, of many: CPU", measured: milliseconds(pod)}
		if n == "20" {
			r.target, r.met = "≤2 ms", pod <= 2e6
		}
		rows = append(rows, r, row{
			what:     "  to openat, read, close of the same files",
			target:   "≤1.4x",
			measured: fmt.Sprintf("%.2fx of %s", pod/bare, milliseconds(bare)),
			met:      pod <= 1.4*bare,
		}, row{
			what:     "  alone in a round; with the diagnosis; to all files",
			measured: fmt.Sprintf("%s; %s; %.2fx, %.2fx of %s", milliseconds(alone), milliseconds(told), alone/whole, told/whole, milliseconds(whole)),
		})
	}
	for _, n := range []struct{ number, name string }{{"1000", "1,000"}, {"5000", "5,000"}} {
		view := "ReadBlocked/" + n.number
		all, bare, other := ns(view+"/ReadBlocked"), ns(view+"/floor"), ns(view+"/procfs")
		rows = append(rows, row{
			what:     "All threads of " + n.name + " processes more: CPU",
			measured: milliseconds(all),
		}, row{
			what:     "  to openat, read, close of the same files",
			target:   "≤3x",
			measured: fmt.Sprintf("%.2fx of %s", all/bare, milliseconds(bare)),
			met:      all <= 3*bare,
		}, row{
			what:     "  to procfs AllProcs+Stat, which reads processes only",
			target:   "≤1x",
			measured: fmt.Sprintf("%.2fx of %s", all/other, milliseconds(other)),
			met:      all <= other,
		}, row{
			what:     "Search for a service among as many: CPU",
			measured: fmt.Sprintf("%s; %.2fx procfs AllProcs+Stat", milliseconds(ns(view+"/ReadProcess")), ns(view+"/ReadProcess")/other),
		})
	}
	few, many := allocated["BenchmarkReadBlocked/1000/ReadBlocked"], allocated["BenchmarkReadBlocked/5000/ReadBlocked"]
	rows = append(rows, row{
		what:     "Allocations for 4,000 healthy processes more",
		target:   "≤16",
		measured: fmt.Sprintf("%.0f, from %.0f to %.0f", many-few, few, many),
		met:      many-few <= 16,
	})
	if missing != "" {
		return nil, fmt.Errorf("benchmark %s of pkg/proc did not run; as root it does\n%s", missing, indent(string(out)))
	}
	return rows, nil
}

// parseBenchmarks returns the least value in a unit of each benchmark by its name
// without the number of processors. A line is a name, the iterations, and pairs
// of value and unit.
func parseBenchmarks(text, unit string) (map[string]float64, error) {
	least := make(map[string]float64)
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := f[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		for i := 2; i+1 < len(f); i += 2 {
			if f[i+1] != unit {
				continue
			}
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("result of %s: %w", name, err)
			}
			if old, ok := least[name]; !ok || v < old {
				least[name] = v
			}
		}
	}
	return least, s.Err()
}

func milliseconds(ns float64) string { return fmt.Sprintf("%.2f ms", ns/1e6) }
