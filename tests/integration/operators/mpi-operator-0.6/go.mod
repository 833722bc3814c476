// The MPI Operator 0.6, for the tests beside it.
module gangsched.io/tests/mpi-operator-0.6

go 1.26

require github.com/kubeflow/mpi-operator v0.6.0
