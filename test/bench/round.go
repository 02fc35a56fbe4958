package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// What is measured of a round: pods that hang on their volumes, beside what a node has more, and pods that live.
var (
	lateScene   = scene{Late: 250, Mounts: 5000, Rounds: 15}
	fewMounts   = lateScene.with(func(s *scene) { s.Mounts = s.Late })
	neighbours  = lateScene.with(func(s *scene) { s.Neighbours = 250 })
	someShims   = lateScene.with(func(s *scene) { s.Shims = 110 })
	manyShims   = lateScene.with(func(s *scene) { s.Shims = 250 })
	sleepers    = lateScene.with(func(s *scene) { s.Sleepers = 1000 })
	livingScene = scene{Living: 250, Rounds: 15}
)

func (s scene) with(change func(*scene)) scene {
	change(&s)
	return s
}

// turns is how often each scene is played, by turns, so that a busy moment of the machine is one of all of them.
const turns = 4

// round measures what a round costs.
func round(ctx context.Context) ([]row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	scenes := []scene{lateScene, fewMounts, neighbours, someShims, manyShims, sleepers, livingScene}
	ours, theirs := make([]costs, len(scenes)), make([]costs, len(scenes))
	for range turns {
		for i, s := range scenes {
			c, err := play(ctx, s, self)
			if err != nil {
				return nil, err
			}
			ours[i].add(c)
			if against == "" {
				continue
			}
			if c, err = play(ctx, s, against); err != nil {
				return nil, fmt.Errorf("the program to compare with: %w", err)
			}
			theirs[i].add(c)
		}
	}
	late, living := &ours[0], &ours[6]
	beside := func(what, target string, i int, most float64) row {
		ratio := float64(ours[i].median()) / float64(late.median())
		return row{what: "  beside " + what, target: target, measured: fmt.Sprintf("%s; %.2fx", &ours[i], ratio), met: ratio <= most}
	}
	each := float64(ours[5].median()-late.median()) / float64(sleepers.Sleepers)
	mounts := late.median() - ours[1].median()
	rows := []row{
		{
			what: fmt.Sprintf("A round of %d late pods, %d mounts: CPU, median", lateScene.Late, late.Mounts), target: "≤75 ms",
			measured: late.String(), met: late.median() <= 75*time.Millisecond,
		},
		{
			what: fmt.Sprintf("  more than with %d mounts", ours[1].Mounts), target: "≤50 ms",
			measured: milliseconds(float64(mounts)), met: mounts <= 50*time.Millisecond,
		},
		beside("250 other pods", "≤1.1x", 2, 1.1),
		beside("110 shims", "≤1.2x", 3, 1.2),
		beside("250 shims", "≤1.3x", 4, 1.3),
		{what: "  beside 1,000 sleeping processes, for each", target: "≤0.1 ms", measured: milliseconds(each), met: each <= 1e5},
		{what: "A round of 250 living pods: CPU, median", target: "≤300 ms", measured: living.String(), met: living.median() <= 300*time.Millisecond},
	}
	for _, of := range []struct {
		what string
		c    *costs
		most int64
	}{{"late", late, 60_000}, {"living", living, 150_000}} {
		rows = append(rows, row{what: "Allocations of a round of 250 " + of.what + " pods", target: fmt.Sprintf("≤%d", of.most),
			measured: strconv.FormatInt(of.c.Allocations, 10), met: of.c.Allocations <= of.most},
			row{what: "  questions to the helper", measured: strconv.FormatInt(of.c.Questions, 10)})
	}
	for i, what := range []string{"late pods", "  fewer mounts", "  other pods", "  110 shims", "  250 shims", "  1,000 sleepers", "living pods"} {
		if against != "" {
			rows = append(rows, row{what: "Against the other commit: " + what, measured: fmt.Sprintf("%.2fx of %s; allocations %d of %d",
				float64(ours[i].median())/float64(theirs[i].median()), &theirs[i], ours[i].Allocations, theirs[i].Allocations)})
		}
	}
	counted, err := countRounds(ctx, self)
	return append(rows, counted...), err
}

// countRounds counts under strace what the first round and the next one open.
func countRounds(ctx context.Context, self string) ([]row, error) {
	var rows []row
	for _, of := range []struct {
		what string
		s    scene
	}{{"late", lateScene}, {"living", livingScene}} {
		dir, err := os.MkdirTemp("", "bench-*")
		if err != nil {
			return rows, err
		}
		defer os.RemoveAll(dir)
		log := filepath.Join(dir, "strace")
		s := of.s.with(func(s *scene) { s.Rounds = 1 })
		if _, err := play(ctx, s, "strace", "-f", "-y", "-qq", "-e", "trace=openat,openat2,getdents64,readlinkat,readlink", "-o", log, self); err != nil {
			return rows, err
		}
		text, err := os.ReadFile(log)
		if err != nil {
			return rows, err
		}
		parts := roundMark.Split(string(text), -1)
		if len(parts) != 4 { // before the first, two, and after them
			return rows, errors.New("strace does not show where the rounds begin: its output is not understood")
		}
		first, next := countOpens(parts[1]), countOpens(parts[2])
		if first.tables == 0 || first.lists == 0 {
			return rows, errors.New("strace shows no mount table and no list of processes: its output is not understood")
		}
		rows = append(rows,
			row{what: fmt.Sprintf("Opened by a round of 250 %s pods: files; the next round", of.what), measured: fmt.Sprintf("%d; %d", first.files, next.files)},
			row{what: "  directories of control groups", measured: fmt.Sprintf("%d; %d", first.groups, next.groups)},
			row{what: "  mount tables of the host; listings of /proc, in a round", target: "1; 1", measured: fmt.Sprintf("%d; %d", next.tables, next.lists),
				met: next.tables == 1 && next.lists == 1})
	}
	return rows, nil
}

// openCounts are what one round opens.
type openCounts struct{ files, groups, tables, lists int }

func countOpens(text string) openCounts {
	return openCounts{
		files: strings.Count(text, " openat(") + strings.Count(text, " openat2("), groups: len(groupListed.FindAllString(text, -1)),
		tables: len(hostTable.FindAllString(text, -1)), lists: len(procListed.FindAllString(text, -1)),
	}
}

// The program looks for a link where a round begins. The host's mount table is opened, a directory of control groups is opened as one, and what the
// list of all processes ends with.
var (
	roundMark   = regexp.MustCompile(`(?m)^.*readlink(?:at)?\([^\n]*"/round/\d+"[^\n]*$`)
	hostTable   = regexp.MustCompile(`(?m)openat2?\([^"\n]*"(?:/proc/)?1/mountinfo"`)
	procListed  = regexp.MustCompile(`(?m)getdents64\(\d+</proc>, [^\n]*= 0$`)
	groupListed = regexp.MustCompile(`(?m)getdents64\(\d+<[^>\n]*/cgroup[^>\n]*>, [^\n]*= 0$`)
)
