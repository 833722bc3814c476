// The MPI Operator 0.7, for the tests beside it.
module gangsched.io/tests/mpi-operator-0.7

go 1.26

require github.com/kubeflow/mpi-operator v0.7.0
