package evidence

import "time"

// A FinalizerSetter is who has put a finalizer on the pod, by its managedFields.
type FinalizerSetter struct {
	Finalizer string `json:"finalizer"`
	// Manager is the name that the client gave itself: any client may take any name.
	Manager string `json:"manager"`
	// Changed is when it last changed something of the pod, by the API server's clock.
	Changed time.Time `json:"changed,omitzero"`
}
