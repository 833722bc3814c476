// Kubeflow Trainer 2.2, for the tests beside it.
module gangsched.io/tests/trainer-2.2

go 1.26

require github.com/kubeflow/trainer/v2 v2.2.0
