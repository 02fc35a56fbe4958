package diagnose

// A Doc holds the words about a cause. The condition, the Event, `nodeagent
// explain` and the runbook page all come from here. Words in braces, as in
// {mount}, are placeholders: a finding's values fill them in, and a page shows
// them in capitals.
type Doc struct {
	// Layer is where the cause sits: signal, kernel, runtime, storage, api.
	Layer string
	// Title is the cause in a few words, for lists.
	Title string
	// Message is the sentence that stands on the pod.
	Message string
	// Meaning tells what the cause is; Evidence how it is recognised and told
	// from what looks like it.
	Meaning, Evidence string
	// Remedy is what is safe to do, safest first; Danger what to avoid and why.
	Remedy, Danger string
	// Phrases are what a page shows for those placeholders that stand for more
	// than a name or a number.
	Phrases map[string]string
	// Families are variants of the cause with a remedy and a danger of their
	// own; an empty one falls back to the Doc's.
	Families []Family
}

// A Family is a variant of a cause, for example the kind of file system.
type Family struct {
	Name, Meaning, Remedy, Danger string
}
