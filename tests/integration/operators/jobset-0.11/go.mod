// JobSet 0.11, for the tests beside it.
module gangsched.io/tests/jobset-0.11

go 1.26

require sigs.k8s.io/jobset v0.11.1
