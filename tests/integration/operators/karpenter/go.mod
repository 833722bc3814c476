// Karpenter 1.15 with its KWOK provider, for the tests beside it.
module gangsched.io/tests/karpenter

go 1.26.9

require sigs.k8s.io/karpenter v1.15.0
