package diagnose

// A Doc holds the words about a cause. The condition, the Event, `nodeagent
// explain` and the runbook page all come from here. Words in braces, as in
// {mountpoint}, are placeholders: a phrase of the Doc, or one of the values of
// words.go, which a finding's objects fill in and a page shows in capitals.
type Doc struct {
	// Layer is where the cause sits: signal, kubelet, kernel, runtime, network, storage, api.
	Layer string
	// Title is the cause in a few words, for lists.
	Title string
	// Message is the sentence that stands on the pod.
	Message string
	// Meaning tells what the cause is.
	Meaning string
	// Seen are the facts that show it, with their values. One of which a value is missing is left out.
	Seen []string
	// Remedy is what is safe to do, safest first; Danger what to avoid and why.
	Remedy, Danger string
	// First and Avoid are what an Event has room for of both: the first safe step, and what would do harm.
	First, Avoid string
	// Who is the person who can act. NotApp says that the pod's own program and manifest have certainly not caused it, and Ends that
	// it ends by itself. What is Quiet does.
	Who          Who
	NotApp, Ends bool
	// WholeNode says that it holds up all pods of the node, and Quiet that nothing is broken.
	WholeNode, Quiet bool
	// Phrases are placeholders whose words depend on the finding: they are the
	// first choice that applies and of which the finding has all values. A page
	// shows the first choice that is for no variant.
	Phrases map[string][]Choice
	// Families are the variants of the cause that a page tells apart.
	Families []Family
}

// A Choice is one wording of a phrase. It is for the findings of a variant, or
// for all when that is "".
type Choice struct{ Variant, Text string }

// A Family is a variant of a cause, for example the kind of file system. An empty
// Remedy, Danger, First or Avoid falls back to the Doc's, and with Who so do NotApp and Ends.
type Family struct {
	Name, Meaning, Remedy, Danger, First, Avoid string
	Who                                         Who
	NotApp, Ends                                bool
	// Shared says that several causes have the family, with the same words: it has
	// a page of its own.
	Shared bool
}
