// Kubeflow Trainer 2.1, for the tests beside it.
module gangsched.io/tests/trainer-2.1

go 1.26

require github.com/kubeflow/trainer/v2 v2.1.0
