#!/usr/bin/env python3
#SBATCH -n 4 -N 1
#SBATCH --time=2-3:4:5
import os
