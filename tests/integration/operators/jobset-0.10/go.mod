// JobSet 0.10, for the tests beside it.
module gangsched.io/tests/jobset-0.10

go 1.26

require sigs.k8s.io/jobset v0.10.1
