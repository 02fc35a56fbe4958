// Package helm names the types of the Prometheus operator, of which controller-gen makes CRDs.
package helm

import _ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
