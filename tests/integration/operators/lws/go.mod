// LeaderWorkerSet, for the tests beside it.
module gangsched.io/tests/lws

go 1.26

require sigs.k8s.io/lws v0.7.0
