// The MPI Operator, for the tests beside it.
module gangsched.io/tests/mpi-operator

go 1.26

require github.com/kubeflow/mpi-operator v0.6.0
