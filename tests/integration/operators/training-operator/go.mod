// The Training Operator, for the tests beside it.
module gangsched.io/tests/training-operator

go 1.26

require github.com/kubeflow/training-operator v1.9.3
