package diagnose

import (
	"maps"
	"slices"
)

// Value returns what a placeholder of a Doc stands for in a finding, and whether the
// finding has it.
func (d *Doc) Value(name string, f *Finding) (string, bool) { return d.value(name, f) }

// Phrase returns the choices of a phrase, the Doc's own or one that all share.
func (d *Doc) Phrase(name string) ([]Choice, bool) { return d.phrase(name) }

// Remedies returns the texts that a finding's remedy and danger are made of.
func (d *Doc) Remedies(f *Finding) (remedy, danger string) { return d.remedy(f) }

// IsValue reports whether a placeholder is one of words.go.
func IsValue(name string) bool { return values[name] != nil }

// Foreign returns how a text that others chose stands in a message.
func Foreign(s string, n int) string { return foreign(s, n) }

// ValueNames returns the placeholders of words.go.
func ValueNames() []string { return slices.Sorted(maps.Keys(values)) }

// Words returns the message, the remedy and the danger of a finding.
func (d *Doc) Words(f *Finding) (message, remedy, danger string) { return d.words(f) }
