// Kueue 0.19, for the tests beside it.
module gangsched.io/tests/kueue

go 1.26.0

require sigs.k8s.io/kueue v0.19.2
