#!/bin/bash
#SBATCH -N4 -n2
